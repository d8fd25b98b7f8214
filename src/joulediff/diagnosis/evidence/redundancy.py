"""Evidence: the expensive side runs an operator that the cheap side does without."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from joulediff.diagnosis.comparison import costliest, ops_of, to_place
from joulediff.diagnosis.evidence.arguments import find_arguments
from joulediff.diagnosis.evidence.calls.extra_call import as_called, find_extra_call
from joulediff.diagnosis.evidence.calls.source_calls import call_behind, calls_in
from joulediff.diagnosis.lead import Change, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_leaving_out, suggest_search, suggest_smaller
from joulediff.frameworks.framework import place_of, short_name
from joulediff.model.energy import joules_of
from joulediff.model.pair import Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting, is_view

# Operators at this share of the costliest one count as equally costly.
_NEARLY = 0.8
_DOES = {
    "movement": "moves data that the other side reads without a copy",
    "repeated": "computes a tensor that exists already",
    "constant": "makes a constant that the other side does without",
    "unused": "computes a tensor that nothing reads",
}


def find_redundancy(subject: Subject) -> list[Lead]:
    """Return the region's own operator as redundant, if the cheap side runs nothing for it.

    If an operator like it has no counterpart on the cheap side either, the two make other tensors: arguments in which
    they differ are the leads then.
    """
    if subject.relation != "one_sided":
        return []
    return _other_arguments(subject) or [_redundant(subject)]


def _other_arguments(subject: Subject) -> list[Lead]:
    op, side = subject.op(subject.expensive), subject.expensive
    assert op is not None
    mine, others = (_ops_alone(subject, each, op) for each in (side, subject.cheap))
    if op not in mine or len(mine) != len(others):
        return []
    ops = pair_from(side, op, others[mine.index(op)])
    region = replace(subject.region, a=(ops.a,), b=(ops.b,), kind="equal", basis="call")
    return find_arguments(replace(subject, region=region, op_a=ops.a, op_b=ops.b))


def _ops_alone(subject: Subject, side: SideName, like: int) -> list[int]:
    """Return the operators of a side that have the name of one, and no such operator beside them, in order."""
    comparison, name = subject.comparison, subject.comparison.run(subject.expensive).ops[like].name
    found = []
    for region in comparison.regions:
        mine, others = (
            [op for op in ops_of(region, x) if comparison.run(x).ops[op].name == name] for x in (side, other_side(side))
        )
        found += [] if others else mine
    return sorted(found)


def find_extra_inputs(subject: Subject) -> list[Lead]:
    """Return the operator that prepares the expensive side's inputs, if the cheap side reads them as they are."""
    if subject.relation != "same_operators" or subject.region.basis == "call":
        return []  # the inputs of two calls that agree may differ in size, and so may the work before them
    comparison, side = subject.comparison, subject.expensive
    costs = comparison.costs[side]
    own, names = ops_of(subject.region, side), _names_on_cheap_side(subject)
    before = [op for op in comparison.runnable_ops(subject.region, side) if op not in own]
    extra = [op for op in before if costs.kernels[op] and comparison.run(side).ops[op].name not in names]
    most_j = max((joules_of(costs.of([op])) for op in extra), default=0.0)
    op = next((op for op in extra if joules_of(costs.of([op])) >= _NEARLY * most_j), None)
    if op is None:
        return []
    region = next(each for each in comparison.regions if op in ops_of(each, side))
    ops = pair_from(side, op, subject.op(subject.cheap))
    return [_redundant(replace(subject, region=region, op_a=ops.a, op_b=ops.b))]


def _names_on_cheap_side(subject: Subject) -> Counter[str]:
    run = subject.comparison.run(subject.cheap)
    return Counter(run.ops[op].name for op in subject.comparison.runnable_ops(subject.region, subject.cheap))


def _redundant(subject: Subject) -> Lead:
    run, op = subject.comparison.run(subject.expensive), subject.op(subject.expensive)
    assert op is not None
    elsewhere = _done_elsewhere(subject, op)
    if elsewhere is not None:
        return _larger(subject, op, elsewhere)
    frame = place_of(run, op)
    call = find_extra_call(subject)
    key, place = (call_behind(run, op, frame), to_place(run, frame)) if call is None else (call.name, call.place)
    values: Pair[Setting] = pair_from(subject.expensive, key, None)
    locations = pair_from(subject.expensive, place, None)
    if subject.region.basis == "call":  # it may be a part of another way to compute the outputs
        evidence = f"{run.ops[op].name} runs on this side only, in calls whose outputs agree"
        cause = make_cause("redundancy", key, values, locations, (evidence,))
        return Lead("unknown", cause, (), suggest_search(cause, subject.expensive, functions=subject.functions))
    evidence = f"{run.ops[op].name} {_DOES.get(subject.region.kind, 'has no counterpart')}"
    cause = make_cause("redundancy", key, values, locations, (evidence,))
    change = Change(f"{key} left out", calls=True)
    return Lead("redundant", cause, (change,), suggest_leaving_out(cause, subject.expensive))


def _done_elsewhere(subject: Subject, op: int) -> int | None:
    """Return an operator that only the cheap side runs, of the same name and on fewer elements; None without one."""
    run, other = subject.comparison.run(subject.expensive), subject.comparison.run(subject.cheap)
    if not run.index.kernels[op] or is_view(run, op):
        return None
    elements = _elements(run, op)
    found = [each for each in _ops_alone(subject, subject.cheap, op) if 0 < _elements(other, each) < elements]
    return costliest(subject.comparison, subject.cheap, found)


def _elements(run: Run, op: int) -> int:
    return sum(math.prod(run.values[value].shape) for value in run.ops[op].outputs)


def _larger(subject: Subject, op: int, elsewhere: int) -> Lead:
    """Return the lead of work that the cheap side does on smaller tensors, at another place of the program."""
    side = subject.expensive
    run, other = subject.comparison.run(side), subject.comparison.run(subject.cheap)
    key, place = _name_larger(subject, run, op)
    name, times = short_name(run.ops[op].name), _elements(run, op) / _elements(other, elsewhere)
    sizes = pair_from(side, _shape(run, op), _shape(other, elsewhere))
    evidence = f"{name} makes {sizes.a} in A and {sizes.b} in B, at another place of the program"
    places = pair_from(side, place, to_place(other, place_of(other, elsewhere)))
    values: Pair[Setting] = Pair(sizes.a, sizes.b)
    cause = make_cause("shape", key, values, places, (evidence,))
    return Lead("redundant", cause, (), suggest_smaller(cause, side, times=times))


def _name_larger(subject: Subject, run: Run, op: int) -> tuple[str, Place | None]:
    """Return the call that an operator runs in, and its line; a line without calls is named by its function."""
    call, frame = find_extra_call(subject), place_of(run, op)
    if call is not None:
        return call.name, call.place
    text = None if frame is None else run.line_text(frame.file, frame.line)
    if frame is not None and frame.owner is None and not calls_in(text or ""):
        return as_called(frame.function), to_place(run, frame)
    return call_behind(run, op, frame), to_place(run, frame)


def _shape(run: Run, op: int) -> str:
    return "×".join(map(str, run.values[run.ops[op].outputs[0]].shape))
