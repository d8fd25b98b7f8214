"""Samples of the host by their call path, and the comparison of two runs' samples with their noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joulediff.energy.host_time import split_path
from joulediff.frameworks.framework import library_packages
from joulediff.model.pair import Pair
from joulediff.model.run import Frame, HostSample, Run

Line = tuple[str, int]
"""File and number of a line."""
# A process in which all lines are slower, up to this factor, ran on a slower or a shared core.
MAX_SLOWER = 1.3
# Beside the line that waits longest, a thread that has its core to itself runs for at least this share of the time.
_QUIET_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Stack:
    """Samples with one call path: its own frames, and the function of a library that the last of them called."""

    own: tuple[Frame, ...]
    callee: Frame | None
    place: object
    """The function of the library, or the text of the last line: the same in both programs."""
    is_gc: bool
    time_s: float
    wait_s: float
    count: int

    @property
    def calls_framework(self) -> bool:
        """Whether the user's line calls a framework: functions of C have no frame."""
        return self.callee is None or self.callee.owner in library_packages()


def stacks_of_both(runs: Pair[Run]) -> Pair[list[Stack]] | None:
    """Return the samples of two runs; None if one of them has none.

    CPU time is compared in place of time if a thread did not have its core to itself.
    """
    if any(run.sampling is None or not run.host_samples for run in runs):
        return None
    by_cpu = not all(_is_quiet(run) for run in runs)
    return Pair(*(_stacks(run, by_cpu=by_cpu) for run in runs))


def _stacks(run: Run, *, by_cpu: bool) -> list[Stack]:
    found = []
    for sample in run.host_samples:
        own, callee = split_path(run.index.path_to(sample.frame))
        place: object = (callee.file, callee.function) if callee is not None else None
        if callee is None and own:
            place = (own[-1].function, text_of(run, own[-1]))
        time_s = sample.cpu_s if by_cpu else sample.time_s
        wait_s = max(0.0, sample.time_s - sample.cpu_s)
        found.append(Stack(own, callee, place, sample.kind == "gc", time_s, wait_s, sample.count))
    return found


def _is_quiet(run: Run) -> bool:
    """Return whether the thread had a core to itself: beside the line that waits longest, it ran nearly always."""
    waits: dict[int | None, list[HostSample]] = {}
    for sample in run.host_samples:
        waits.setdefault(sample.frame, []).append(sample)
    longest = max(waits.values(), key=lambda each: sum(sample.time_s - sample.cpu_s for sample in each))
    rest = [sample for sample in run.host_samples if sample not in longest]
    return sum(each.cpu_s for each in rest) >= _QUIET_SHARE * sum(each.time_s for each in rest)


def slower_factor(mine: Sequence[Stack], others: Sequence[Stack]) -> float:
    """Return the factor by which this side takes longer for most of the time that both spend in the same places."""
    times: Pair[dict[object, float]] = Pair({}, {})
    for into, stacks in ((times.a, mine), (times.b, others)):
        for stack in stacks:
            into[stack.place] = into.get(stack.place, 0.0) + stack.time_s
    both = sorted((times.a[key] / times.b[key], times.b[key]) for key in times.a if times.b.get(key, 0.0) > 0)
    half, passed = sum(weight for _, weight in both) / 2, 0.0
    for ratio, weight in both:
        passed += weight
        if passed >= half:
            return min(max(ratio, 1.0), MAX_SLOWER)
    return 1.0


def time_of(stacks: Iterable[Stack]) -> float:
    """Return the time of samples in a step."""
    return sum(stack.time_s for stack in stacks)


def sigma_of(stacks: Iterable[Stack]) -> float:
    """Return the standard deviation of sampled time: samples are counted events; collections are timed."""
    return math.sqrt(sum(stack.time_s**2 / max(1, stack.count) for stack in stacks if not stack.is_gc))


def text_of(run: Run, frame: Frame) -> str:
    """Return the text of a frame's line."""
    return run.line_text(frame.file, frame.line) or f"{frame.function}:{frame.line}"


def lines_with_operators(run: Run) -> frozenset[tuple[str, int]]:
    """Return the lines below which operators ran."""
    seen: set[int] = set()
    for at in {op.frame for op in run.ops}:
        while at is not None and at not in seen:
            seen.add(at)
            at = run.frames[at].parent
    return frozenset((run.frames[at].file, run.frames[at].line) for at in seen)


def shares_beyond_operators(run: Run, stacks: Sequence[Stack], launch_s: float = 0.0) -> dict[Line, float]:
    """Return which share of the time of each line that runs operators is not theirs: to launch them, or to run them."""
    times_s = _time_by_line(stacks)
    return {
        line: 1 - min(1.0, _operators_s(run, ops, launch_s) / times_s[line])
        for line, ops in ops_by_line(run).items()
        if times_s.get(line, 0.0) > 0
    }


def launch_time_s(run: Run, stacks: Sequence[Stack]) -> float:
    """Return the host's time for each operator beyond the operator itself, in the lines that run operators."""
    ops, times_s = ops_by_line(run), _time_by_line(stacks)
    count = sum(map(len, ops.values()))
    extra_s = sum(max(0.0, times_s.get(line, 0.0) - _operators_s(run, each, 0.0)) for line, each in ops.items())
    return extra_s / count if count else 0.0


def _operators_s(run: Run, ops: Sequence[int], launch_s: float) -> float:
    kernels = (run.kernels[at] for op in ops for at in run.index.kernels[op])
    return len(ops) * launch_s + sum(kernel.duration_s for kernel in kernels if kernel.kind == "cpu")


def ops_by_line(run: Run) -> dict[Line, list[int]]:
    """Return operators by the user's innermost line on the way to them."""
    found: dict[Line, list[int]] = {}
    for number, ops in run.index.ops_by_frame.items():
        own = [frame for frame in run.index.path_to(number) if frame.owner is None]
        if own:
            found.setdefault(line_of(own[-1]), []).extend(ops)
    return found


def _time_by_line(stacks: Sequence[Stack]) -> dict[Line, float]:
    """Return the time in each of the user's innermost lines, and in the framework that it calls."""
    found: dict[Line, float] = {}
    for stack in stacks:
        if stack.own and stack.calls_framework:
            line = line_of(stack.own[-1])
            found[line] = found.get(line, 0.0) + stack.time_s
    return found


def line_of(frame: Frame) -> Line:
    """Return the line of a frame."""
    return frame.file, frame.line


def longest_line(run: Run, stacks: Sequence[Stack]) -> Frame | None:
    """Return the user's line in which the host spends the most time beyond operators; None without one."""
    shares, times_s = shares_beyond_operators(run, stacks), dict[Frame, float]()
    for stack in stacks:
        if stack.own:
            share = shares.get(line_of(stack.own[-1]), 1.0) if stack.calls_framework else 1.0
            times_s[stack.own[-1]] = times_s.get(stack.own[-1], 0.0) + share * stack.time_s
    return max(times_s, key=lambda frame: times_s[frame], default=None)
