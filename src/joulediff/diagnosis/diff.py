"""Compare two of: recordings, callables of this process, programs.

A callable is recorded here, a program in a process of its own, as `joulediff diff` does. Two callables, and two
programs, are measured in alternation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from joulediff.archive.container import is_recording
from joulediff.archive.reader import load_run
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.gate.judge import judge
from joulediff.model.diff import Diff, Thresholds
from joulediff.model.errors import WrongType
from joulediff.model.options import DiffOptions, RecordOptions
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.pysource.programs import check_step, label_of, name_of, shown_type, split_target

if TYPE_CHECKING:
    from joulediff.archive.snapshot import Snapshot
    from joulediff.diagnosis.interleaved_recording import Program

Compared = Run | str | Path | Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides by what they are."""

    runs: Mapping[SideName, Run]
    steps: Mapping[SideName, Callable[[], object]]
    programs: Mapping[SideName, str]


def diff(
    a: Compared,
    b: Compared,
    *,
    label_a: str | None = None,
    label_b: str | None = None,
    threshold: float = DiffOptions.threshold,
    slower: float = DiffOptions.slower,
    difference: float = DiffOptions.difference,
    tolerance: float = DiffOptions.tolerance,
    fail_above: float | None = DiffOptions.fail_above,
    seconds: float = RecordOptions.seconds,
    meter: str = RecordOptions.meter,
    wait_s: float = RecordOptions.wait_s,
    cpu_watts: float | None = RecordOptions.cpu_watts,
    clock_offset_s: float = RecordOptions.clock_offset_s,
    source: bool = RecordOptions.source,
    cpp: bool = RecordOptions.cpp,
    replay: bool = RecordOptions.replay,
    replay_seconds: float = RecordOptions.replay_seconds,
    listener: ProgressListener | None = None,
) -> Diff:
    """Return what differs between two programs, and why.

    Each side is a run, the path of a .jd file, a function without arguments, or a program as `joulediff diff` takes it:
    `FILE.py[:name]` or `module:name`. Functions are recorded in this process, and fixes are tried on them; their
    results, exceptions and random numbers stay as they are. `threshold` is the smallest difference to report. A waste
    can be removed with at most `slower` more time and `difference` in the outputs; else the finding is a trade-off.
    With `fail_above`, `gate` says whether B uses more energy than A by more than this share. The other options are
    those of `record`, for the sides that are recorded.
    """
    options = DiffOptions(
        threshold=threshold, slower=slower, difference=difference, tolerance=tolerance, fail_above=fail_above
    )
    recording = RecordOptions(
        seconds=seconds,
        meter=meter,
        wait_s=wait_s,
        cpu_watts=cpu_watts,
        clock_offset_s=clock_offset_s,
        source=source,
        cpp=cpp,
        replay=replay,
        replay_seconds=replay_seconds,
    )
    labels: dict[SideName, str | None] = {"a": label_a, "b": label_b}
    sides = _sort({"a": a, "b": b})
    runs = {side: _relabelled(run, labels[side]) for side, run in sides.runs.items()}
    if not sides.steps and not sides.programs:
        return _diagnose(runs, options, listener)
    each = {side: replace(recording, label=label) for side, label in _labels(sides, labels).items()}
    if sides.steps and sides.programs:  # a program in a process is recorded beside a run
        runs |= _record_alone(sides.steps, each, listener)
    if sides.programs:
        return _diff_programs(sides.programs, runs, each, options, listener)
    return _diff_steps(sides.steps, runs, each, options, listener)


def _sort(given: Mapping[SideName, Compared]) -> _Sides:
    runs: dict[SideName, Run] = {}
    steps: dict[SideName, Callable[[], object]] = {}
    programs: dict[SideName, str] = {}
    for side, value in given.items():
        if isinstance(value, Run):
            runs[side] = value
        elif isinstance(value, str | Path):
            if _is_program(str(value)):
                programs[side] = str(value)
            else:
                runs[side] = load_run(value)
        elif callable(value):
            check_step(value, f"{name_of(value)}, side {side.upper()} of the diff,")
            steps[side] = value
        else:
            raise WrongType(
                f"side {side.upper()} of a diff cannot be {shown_type(value)}",
                fix="give a Run, the path of a .jd file, a function without arguments, or FILE.py:name",
            )
    return _Sides(runs, steps, programs)


def _is_program(target: str) -> bool:
    if is_recording(target):
        return False
    place, _ = split_target(target)
    return place.endswith(".py") or place != target


def _labels(sides: _Sides, given: Mapping[SideName, str | None]) -> dict[SideName, str]:
    """Return the labels of the sides to record; equal ones are told apart by their side."""
    found = {side: given[side] or name_of(step) for side, step in sides.steps.items()}
    found |= {side: given[side] or label_of(program) for side, program in sides.programs.items()}
    if len(set(found.values())) == 1 and len(found) == len(SIDES) and not any(given.values()):
        return {side: f"{label} ({side.upper()})" for side, label in found.items()}
    return found


def _relabelled(run: Run, label: str | None) -> Run:
    return run if label is None else replace(run, label=label)


def _diagnose(runs: Mapping[SideName, Run], options: DiffOptions, listener: ProgressListener | None) -> Diff:
    limits = Thresholds.of(options)
    found = diagnose(runs["a"], runs["b"], thresholds=limits, tolerance=options.tolerance, listener=listener)
    return _gated(found, options)


def _gated(diff: Diff, options: DiffOptions) -> Diff:
    return diff if options.fail_above is None else replace(diff, gate=judge(diff, options.fail_above))


def _diff_steps(
    steps: Mapping[SideName, Callable[[], object]],
    runs: Mapping[SideName, Run],
    each: Mapping[SideName, RecordOptions],
    options: DiffOptions,
    listener: ProgressListener | None,
) -> Diff:
    from joulediff.session.record_pair import recorded_here

    with recorded_here(steps, each, listener=listener) as found:
        every = {**runs, **found.runs}
        for side, program in found.live.items():
            program.take_other(every[other_side(side)])
        compared = diagnose(
            every["a"],
            every["b"],
            thresholds=Thresholds.of(options),
            tolerance=options.tolerance,
            live=found.live,
            listener=listener,
            interleaved=len(steps) == len(SIDES),
        )
        return _gated(compared, options)


def _record_alone(
    steps: Mapping[SideName, Callable[[], object]],
    each: Mapping[SideName, RecordOptions],
    listener: ProgressListener | None,
) -> Mapping[SideName, Run]:
    from joulediff.session.record_pair import recorded_here

    with recorded_here(steps, each, listener=listener) as found:
        return found.runs


def _diff_programs(
    programs: Mapping[SideName, str],
    runs: Mapping[SideName, Run],
    each: Mapping[SideName, RecordOptions],
    options: DiffOptions,
    listener: ProgressListener | None,
) -> Diff:
    from joulediff.diagnosis.compare_programs import compare_programs

    found = {side: _program(target, each[side]) for side, target in programs.items()}
    return compare_programs(found, runs, options, listener=listener or ProgressListener())


def _program(target: str, options: RecordOptions) -> Program:
    from joulediff.diagnosis.interleaved_recording import Program
    from joulediff.process.interpreter import find_interpreter
    from joulediff.process.request import Request

    return Program(Request(target, options), find_interpreter(None), _keep_nothing)


def _keep_nothing(_: Snapshot) -> None:
    pass
