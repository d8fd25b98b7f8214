"""Evidence: the host of one side runs code of a library that the other side does not run at all.

Hooks, modes and profilers work inside the lines that run operators, so no line of the user's shows them. The evidence
is a file of a library in the sampled call paths of one side alone, and another line of the user's that names something
in it. Code that a line calls by its name, or that is a module of the model, is left to other evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, to_place
from joulediff.diagnosis.evidence.calls.source_calls import calls_in
from joulediff.diagnosis.evidence.host.host_lines import LEAST_SAMPLES, LEAST_SHARE, SIGMAS, HostLine
from joulediff.energy.host_time import function_name
from joulediff.model.pair import SideName, other_side, pair_from
from joulediff.model.run import Frame, Run

# Functions that run operators as a part of the model.
_MODULES = (".forward",)


@dataclass(slots=True)
class _File:
    """The sampled time below a file of a library, and its outermost functions by their time."""

    time_s: float = 0.0
    count: int = 0
    frames: dict[str, tuple[Frame, float]] | None = None


def find_library_work(comparison: Comparison, expensive: SideName) -> tuple[HostLine, ...]:
    """Return the line that names code which only this side runs, with the time below that code; empty without one."""
    run, other = comparison.run(expensive), comparison.run(other_side(expensive))
    if run.sampling is None or other.sampling is None or not other.host_samples:
        return ()
    theirs = {frame.file for sample in other.host_samples for frame in other.index.path_to(sample.frame)}
    files = {file: found for file, found in _files(run).items() if file not in theirs}
    extra_s = max(0.0, run.sampling.step_s - other.sampling.step_s)
    for _, found in sorted(files.items(), key=lambda each: -each[1].time_s):
        # The standard deviation of a count of n samples is its root.
        is_sure = found.count >= max(LEAST_SAMPLES, SIGMAS**2)
        named = _find_name(run, found) if is_sure and found.time_s >= LEAST_SHARE * run.sampling.step_s else None
        if named is None:
            continue
        key, line, function = named
        # Operators run below that code too, and take the other side's time there.
        excess_s = min(found.time_s, extra_s)
        place = to_place(run, line)
        assert place is not None
        times_s = pair_from(expensive, found.time_s, found.time_s - excess_s)
        found_line = HostLine(
            expensive=expensive,
            place=place,
            key=key,
            seconds_a=times_s.a,
            seconds_b=times_s.b,
            what=function_name(function),
            share=excess_s / run.sampling.step_s,
            is_wait=False,
            runs_operators=False,
        )
        return (found_line,)
    return ()


def _files(run: Run) -> dict[str, _File]:
    """Return the files of libraries in the sampled call paths."""
    found: dict[str, _File] = {}
    for sample in run.host_samples:
        first: dict[str, Frame] = {}
        text = ""
        for frame in run.index.path_to(sample.frame):
            if frame.owner is None:
                text = run.line_text(frame.file, frame.line) or ""
            elif _is_named_in(text, frame):
                break
            elif not frame.function.endswith(_MODULES):
                first.setdefault(frame.file, frame)
        for name, frame in first.items():
            file = found.setdefault(name, _File(frames={}))
            file.time_s += sample.time_s
            file.count += sample.count
            assert file.frames is not None
            time_s = file.frames.get(frame.function, (frame, 0.0))[1]
            file.frames[frame.function] = (frame, time_s + sample.time_s)
    return found


def _is_named_in(text: str, frame: Frame) -> bool:
    """Return whether a line calls a function or its class by name."""
    calls = calls_in(text)
    return any(word in calls for word in _names_of(frame))


def _find_name(run: Run, found: _File) -> tuple[str, Frame, Frame] | None:
    """Return the call in a line of the user's that names a function or class of a file, the line, and the function."""
    frames = sorted((found.frames or {}).values(), key=lambda each: -each[1])
    for frame, _ in frames:
        for word in _names_of(frame):
            for file, line, text in _own_lines(run):
                if re.search(rf"\b{re.escape(word)}\b", text) and word in calls_in(text):
                    return word, _frame_at(run, file, line), frame
    return None


def _names_of(frame: Frame) -> Iterator[str]:
    """Yield the names by which a program may call a function: its class comes first, also without an underscore."""
    for word in frame.function.split("."):
        if not word.startswith(("<", "__")):
            yield from dict.fromkeys((word, word.lstrip("_")))


def _own_lines(run: Run) -> Iterator[tuple[str, int, str]]:
    """Yield the recorded lines of the user's own code, those of functions that the step runs first."""
    own = {frame.file for frame in run.frames if frame.owner is None}
    stepping = {(frame.file, frame.line) for frame in run.frames if frame.owner is None}
    lines = [(file, line, text) for (file, line), text in run.index.lines.items() if file in own]
    yield from sorted(lines, key=lambda each: (each[:2] not in stepping, each[:2]))


def _frame_at(run: Run, file: str, line: int) -> Frame:
    known = next((frame for frame in run.frames if (frame.file, frame.line) == (file, line)), None)
    return known or Frame(file, line, "", None, None)
