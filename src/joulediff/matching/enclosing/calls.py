"""The calls of a run: nested spans of operators that one function, one iteration of a loop or one module ran.

A recording holds the call path of each operator, not when a call began. A span ends where the path leaves the function.
Frames are shared by all iterations of a loop; a line before the last one in the same function begins an iteration. The
spans of modules are a tree of their own: a module may be called at the end of one iteration and at the start of the
next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from joulediff.model.run import Frame, Run

Span = tuple[int, int]
"""The first operator, and the one after the last."""


@dataclass(frozen=True, slots=True)
class CallTree:
    """Nested spans of operators. Call 0 is the whole step; every call comes after the one around it."""

    spans: Sequence[Span]
    parents: Sequence[int]
    """By call: the next larger call around it; -1 for the whole step."""
    innermost: Sequence[int]
    """By operator: the smallest call that holds it."""


def find_calls(run: Run) -> tuple[CallTree, CallTree]:
    """Return the calls of functions with the iterations of loops, and the calls of modules."""
    count = len(run.ops)
    return to_tree(_find_function_calls(run), count), to_tree(_find_module_calls(run), count)


def to_tree(spans: Iterable[Span], count: int) -> CallTree:
    """Return the tree of spans that are nested or apart; equal spans are one call, and empty ones are left out."""
    ordered = sorted({(0, count), *(span for span in spans if span[0] < span[1])}, key=lambda span: (span[0], -span[1]))
    parents: list[int] = []
    innermost = [0] * count
    around: list[int] = []
    for number, (first, end) in enumerate(ordered):
        while around and ordered[around[-1]][1] <= first:
            around.pop()
        parents.append(around[-1] if around else -1)
        around.append(number)
        innermost[first:end] = [number] * (end - first)
    return CallTree(ordered, parents, innermost)


@dataclass(slots=True)
class _OpenCall:
    """A function that has not returned yet, with the lines that it ran so far."""

    first: int
    visits: list[tuple[int, int]] = field(default_factory=list)
    """Each line with its first operator, in the order of execution."""


def _find_function_calls(run: Run) -> Iterator[Span]:
    depths = _find_depths(run.frames)
    open_calls: list[_OpenCall] = []
    last: int | None = None
    for op in run.ops:
        if op.frame == last:
            continue
        kept, entered = _compare_paths(run.frames, depths, last, op.frame)
        # The first frame that changed may be the same call at another line.
        if entered and kept < len(open_calls) and _is_same_call(run.frames, last, depths, entered[0]):
            yield from _close(open_calls, kept + 1, op.id)
            open_calls[kept].visits.append((run.frames[entered[0]].line, op.id))
            entered = entered[1:]
        else:
            yield from _close(open_calls, kept, op.id)
        open_calls += [_OpenCall(op.id, [(run.frames[frame].line, op.id)]) for frame in entered]
        last = op.frame
    yield from _close(open_calls, 0, len(run.ops))


def _find_depths(frames: Sequence[Frame]) -> list[int]:
    found: list[int] = []
    for frame in frames:
        found.append(0 if frame.parent is None else found[frame.parent] + 1)
    return found


def _compare_paths(
    frames: Sequence[Frame], depths: Sequence[int], last: int | None, now: int | None
) -> tuple[int, list[int]]:
    """Return the number of frames that two paths share, and the other frames of the second path, outermost first."""
    entered: list[int] = []
    while last != now:
        if now is not None and (last is None or depths[now] >= depths[last]):
            entered.append(now)
            if last is not None and depths[now] == depths[last]:
                last = frames[last].parent
            now = frames[now].parent
        else:
            assert last is not None
            last = frames[last].parent
    return 0 if now is None else depths[now] + 1, entered[::-1]


def _is_same_call(frames: Sequence[Frame], last: int | None, depths: Sequence[int], entered: int) -> bool:
    """Return whether a frame is of the same function as the frame of the last path at its depth."""
    while last is not None and depths[last] > depths[entered]:
        last = frames[last].parent
    if last is None:
        return False
    return (frames[last].file, frames[last].function) == (frames[entered].file, frames[entered].function)


def _close(calls: list[_OpenCall], kept: int, end: int) -> Iterator[Span]:
    for call in calls[kept:]:
        yield call.first, end
        yield from find_iterations(call.visits, end)
    del calls[kept:]


@dataclass(slots=True)
class _Loop:
    line: int
    """The first line of its body."""
    last_line: int
    iteration: int
    """The first operator of the current iteration."""


def find_iterations(visits: Iterable[tuple[int, int]], end: int) -> Iterator[Span]:
    """Yield the iterations of the loops in one call, given each line that it ran with its first operator.

    A loop has ended when a line outside of its lines runs.
    """
    loops: list[_Loop] = []
    lines: list[tuple[int, int]] = []  # lines of the current iterations, increasing
    for line, op in visits:
        while loops and not loops[-1].line <= line <= loops[-1].last_line:
            loop = loops.pop()
            yield loop.iteration, op
            while lines[-1][0] > loop.line:  # no other iteration begins inside this one
                lines.pop()
        last_line, start = (lines[-1][0] if lines else line), None
        while lines and lines[-1][0] >= line:
            start = lines.pop()[1]
        lines.append((line, op))
        if start is None:
            continue
        if loops and loops[-1].line == line:
            yield loops[-1].iteration, op
            loops[-1].iteration = op
        else:
            yield start, op
            loops.append(_Loop(line, last_line, op))
    while loops:
        yield loops.pop().iteration, end


def _find_module_calls(run: Run) -> Iterator[Span]:
    """Yield the spans of operators of each module; a backward operator belongs to the module of its forward one."""
    path: list[tuple[str, int]] = []  # part of the name, first operator
    last: tuple[object, ...] = ()
    for op in run.ops:
        module = op.module
        if module is None and op.forward is not None:
            module = run.ops[op.forward].module
        if (op.phase, module) == last:
            continue
        last = (op.phase, module)
        parts = [op.phase, *(module.split(".") if module else ())] if module is not None else []
        kept = 0
        while kept < min(len(path), len(parts)) and path[kept][0] == parts[kept]:
            kept += 1
        for _, first in path[kept:]:
            yield first, op.id
        path[kept:] = [(part, op.id) for part in parts[kept:]]
    for _, first in path:
        yield first, len(run.ops)
