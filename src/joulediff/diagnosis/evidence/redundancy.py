"""Evidence: the expensive side runs an operator that the cheap side does without."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from joulediff.diagnosis.comparison import ops_of, to_place
from joulediff.diagnosis.evidence.calls.source_calls import call_behind
from joulediff.diagnosis.lead import Change, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_leaving_out, suggest_search
from joulediff.frameworks.framework import place_of
from joulediff.model.energy import joules_of
from joulediff.model.pair import Pair, pair_from
from joulediff.model.run import Setting

# Operators at this share of the costliest one count as equally costly.
_NEARLY = 0.8
_DOES = {
    "movement": "moves data that the other side reads without a copy",
    "repeated": "computes a tensor that exists already",
    "constant": "makes a constant that the other side does without",
    "unused": "computes a tensor that nothing reads",
}


def find_redundancy(subject: Subject) -> list[Lead]:
    """Return the region's own operator as redundant, if the cheap side runs nothing for it."""
    return [_redundant(subject)] if subject.relation == "one_sided" else []


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
    frame = place_of(run, op)
    key = call_behind(run, op, frame)
    values: Pair[Setting] = pair_from(subject.expensive, key, None)
    locations = pair_from(subject.expensive, to_place(run, frame), None)
    if subject.region.basis == "call":  # it may be a part of another way to compute the outputs
        evidence = f"{run.ops[op].name} runs on this side only, in calls whose outputs agree"
        cause = make_cause("redundancy", key, values, locations, (evidence,))
        return Lead("unknown", cause, (), suggest_search(cause, subject.expensive, functions=subject.functions))
    evidence = f"{run.ops[op].name} {_DOES.get(subject.region.kind, 'has no counterpart')}"
    cause = make_cause("redundancy", key, values, locations, (evidence,))
    change = Change(f"{key} left out", calls=True)
    return Lead("redundant", cause, (change,), suggest_leaving_out(cause, subject.expensive))
