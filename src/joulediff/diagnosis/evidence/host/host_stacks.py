"""Samples of the host by their call path, and the comparison of two runs' samples with their noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joulediff.energy.host_time import split_path
from joulediff.model.pair import Pair
from joulediff.model.run import Frame, HostSample, Run

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
