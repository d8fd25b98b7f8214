"""Evidence: the expensive side does the same work on the same values several times in one step.

Two operators do the same if they have the same name, arguments and results, and their inputs are equal. The cheap side
must do it less often: work that both programs repeat is no cause of a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, costliest, ops_of, to_place
from joulediff.diagnosis.evidence.calls.extra_call import as_called
from joulediff.diagnosis.evidence.calls.source_calls import call_behind, calls_in
from joulediff.diagnosis.lead import Change, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_keeping
from joulediff.frameworks.framework import outer_path, place_of
from joulediff.model.energy import joules_of
from joulediff.model.pair import Pair, SideName, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run, Setting, work_of

# Operators with this share of the extra energy must be repeated: the rest may differ from one time to the next.
_MOST = 0.6
# Each line of a repeated function repeats this share of its operators: the first or the last time may differ.
_MOST_TIMES = 0.8
# A call is named in place of the function inside it that does at least this share of its work.
_MOST_OF_CALL = 0.8


@dataclass(frozen=True, slots=True)
class Repetition:
    """Work that a run repeats: the operators of one time, how often they run, and the call that runs them."""

    ops: int
    times: int
    times_other: int
    key: str
    place: Place | None


def find_repetition(subject: Subject) -> list[Lead]:
    """Return the call that is repeated, if most of the region's extra work was done before alike."""
    found = _find(subject)
    if found is None:
        return []
    side = subject.expensive
    values: Pair[Setting] = pair_from(side, found.times, found.times_other)
    locations = pair_from(side, found.place or subject.place(side), subject.place(subject.cheap))
    operators = "operator" if found.ops == 1 else f"{found.ops} operators"
    evidence = (
        f"the same {operators} on the same values, {found.times} times in a step; "
        f"the other side runs them {_times(found.times_other)}"
    )
    cause = make_cause("repetition", found.key, values, locations, (evidence,))
    changes = () if subject.region.basis == "call" else (Change(f"{found.key} left out", calls=True),)
    return [Lead("redundant", cause, changes, suggest_keeping(cause, side))]


def _times(count: int) -> str:
    words = {0: "never", 1: "once", 2: "twice"}
    return words.get(count, f"{count} times")


def _find(subject: Subject) -> Repetition | None:
    comparison, side = subject.comparison, subject.expensive
    run = comparison.run(side)
    first = run.index.same_before
    sizes = Counter(first)
    extra = _extra_ops(subject)
    op = costliest(comparison, side, extra)
    # A copy that the cheap side does without is better left out than kept.
    if op is None or subject.region.kind == "movement" or sizes[first[op]] < 2:
        return None
    if not _is_mostly_repeated(comparison, side, extra, sizes):
        return None
    same = [each for each, kind in enumerate(first) if kind == first[op]]
    others = _times_on_cheap_side(subject, same)
    if others >= len(same):
        return None
    function = _repeated_function(run, op, sizes)
    if function is None:
        frame = place_of(run, op)
        return Repetition(1, len(same), others, call_behind(run, op, frame), to_place(run, frame))
    inside = [each for each in _ops_in(run, function) if run.index.kernels[each]]
    kinds = len({first[each] for each in inside})
    return Repetition(kinds, len(same), others, *_name_call(comparison, side, _undecorated(run, op, function), same))


def _extra_ops(subject: Subject) -> list[int]:
    """Return the operators with kernels that the cheap side of the region lacks; of repeated ones, the later times."""
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    left = Counter(_work(other, op) for op in ops_of(subject.region, subject.cheap))
    working = [op for op in ops_of(subject.region, subject.expensive) if run.index.kernels[op]]
    extra = []
    for op in sorted(working, key=lambda op: (run.index.same_before[op] != op, op)):
        if left[_work(run, op)]:
            left[_work(run, op)] -= 1
        else:
            extra.append(op)
    return extra


def _work(run: Run, op: int) -> tuple[object, ...]:
    return work_of(run, op, device=False, alignment=False, kernels=False)


def _shapes(run: Run, op: int) -> tuple[object, ...]:
    """Return the operator and its shapes: its arguments may differ, as with and without gradients."""
    return (run.ops[op].name, *(run.values[value].shape for value in run.ops[op].inputs))


def _is_mostly_repeated(comparison: Comparison, side: SideName, ops: Iterable[int], sizes: Counter[int]) -> bool:
    costs, first = comparison.costs[side], comparison.run(side).index.same_before
    each_j = {op: joules_of(costs.of([op])) for op in ops}
    repeated_j = sum(own_j for op, own_j in each_j.items() if sizes[first[op]] > 1)
    return repeated_j >= _MOST * sum(each_j.values())


def _times_on_cheap_side(subject: Subject, same: Sequence[int]) -> int:
    """Return how often the cheap side does the same work, in the regions of the repeated operators."""
    comparison, side = subject.comparison, subject.expensive
    run, other = comparison.run(side), comparison.run(subject.cheap)
    wanted = _shapes(run, same[0])
    members = set(same)
    regions = [each for each in comparison.regions if members.intersection(ops_of(each, side))]
    like = [op for region in regions for op in ops_of(region, subject.cheap) if _shapes(other, op) == wanted]
    first = other.index.same_before
    sizes = Counter(first)
    return max((sizes[first[op]] for op in like), default=0)


def _repeated_function(run: Run, op: int, sizes: Counter[int]) -> Frame | None:
    """Return the outermost function on the way to an operator whose work is repeated; None if there is none."""
    first = run.index.same_before
    for frame in outer_path(run, op):
        if frame.parent is None:
            continue
        every = _ops_in(run, frame)
        working = [each for each in every if run.index.kernels[each]]
        is_all = all(sizes[first[each]] > 1 for each in working)
        if is_all or (_is_called_again(every) and _is_mostly_repeated_everywhere(run, working, sizes)):
            return frame
    return None


def _undecorated(run: Run, op: int, function: Frame) -> Frame:
    """Return the function that a decorator's wrapper in a library calls; any other function itself."""
    if function.owner is None:
        return function
    path = outer_path(run, op)
    inside = path[path.index(function) :] if function in path else (function,)
    return next((frame for frame in inside if "<locals>" not in frame.function), function)


def _is_called_again(inside: Iterable[int]) -> bool:
    """Return whether other operators run between those of a function: it is called several times, and has no loop."""
    found = set(inside)
    return sum(op - 1 not in found for op in found) > 1


def _is_mostly_repeated_everywhere(run: Run, inside: Iterable[int], sizes: Counter[int]) -> bool:
    """Return whether each line of a function repeats most of its operators."""
    first = run.index.same_before
    alike: dict[tuple[str, int | None], list[bool]] = {}
    for op in inside:
        alike.setdefault((run.ops[op].name, run.ops[op].frame), []).append(sizes[first[op]] > 1)
    return all(sum(each) >= _MOST_TIMES * len(each) for each in alike.values())


def _ops_in(run: Run, frame: Frame) -> list[int]:
    """Return the operators of a function that was called where a frame was: any line of it counts."""
    return [
        op
        for number, ops in run.index.ops_by_frame.items()
        if any((each.parent, each.function) == (frame.parent, frame.function) for each in run.index.path_to(number))
        for op in ops
    ]


def _name_call(
    comparison: Comparison, side: SideName, function: Frame, same: Iterable[int]
) -> tuple[str, Place | None]:
    """Return the call of a repeated function in the nearest line of the user's, and that line.

    A line that does not run it each time, such as one that computes gradients, does not name it, nor does a call that
    does much else, such as that of a whole model.
    """
    run = comparison.run(side)
    assert function.parent is not None
    callers = run.index.path_to(function.parent)
    own = [frame for frame in callers if frame.owner is None]
    line = own[-1] if own else callers[-1]
    words = [word for word in function.function.split(".") if not word.startswith("<")]
    calls = calls_in(run.line_text(line.file, line.line) or "")
    called = next((word for word in reversed(words) if word in calls), None)
    is_only_call = len(calls) == 1 and all(line in run.call_path(op) for op in same)
    if called is None and is_only_call and _is_most_of(comparison, side, line, function):
        called = calls[0]
    return called or as_called(".".join(words[-2:])), to_place(run, line)


def _is_most_of(comparison: Comparison, side: SideName, line: Frame, function: Frame) -> bool:
    """Return whether a function does most of the work below a line that calls it."""
    run, costs = comparison.run(side), comparison.costs[side]
    below = [op for number, ops in run.index.ops_by_frame.items() if line in run.index.path_to(number) for op in ops]
    inside = set(_ops_in(run, function))
    inside_j = joules_of(costs.of(op for op in below if op in inside))
    return inside_j >= _MOST_OF_CALL * joules_of(costs.of(below))
