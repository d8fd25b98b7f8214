"""Trial: several regions as one, either all regions of a call in the user's code or regions separated by padding.

Two implementations of one function share some tensors by chance. The small regions between them cannot be changed
one by one, but the call can. Padded tensors equal others only up to zeros, so they cannot replace them as inputs of a
trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.draft import REPLACEMENT_CONFIRMED, Draft
from joulediff.diagnosis.evidence.calls.deviation import library_call, ops_of_call, shared_frames
from joulediff.diagnosis.lead import Change
from joulediff.diagnosis.trials.region_trials import RegionTrials
from joulediff.model.finding import Region
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.run import Frame, Run

# More regions than this are no single function.
MAX_REGIONS = 200


def try_whole_call(draft: Draft) -> Draft:
    """Return the draft after a trial of all regions of its call, if its lead is a call of several regions."""
    subject, trials, lead = draft.subject, draft.trials, draft.lead
    if subject is None or trials is None or not lead.is_by_call:
        return draft
    comparison = draft.comparison
    members = regions_of_call(comparison, subject.expensive, subject.op_a, subject.op_b) or [subject.region]
    members = add_padded(comparison, members)
    if [region.id for region in members] == [subject.region.id]:
        return draft
    whole = RegionTrials(
        comparison,
        subject.expensive,
        join_regions(comparison, members),
        trials.live,
        draft.limits,
        at_host_pace=trials.at_host_pace,
    )
    trial = whole.try_changes([Change(f"the calls of the other side, for all of {lead.cause.key}", calls=True)])
    if not trial.explains:
        return replace(draft, failed=(*draft.failed, trial))
    tried = frozenset(region.id for region in members)
    return replace(draft, trials=whole, proof=REPLACEMENT_CONFIRMED, tried_regions=tried)


def regions_of_call(comparison: Comparison, side: SideName, op_a: int | None, op_b: int | None) -> list[Region]:
    """Return all regions of the library's function that the user's code calls for an operator of a side.

    The list is empty if both sides call that function: then they differ inside it.
    """
    if op_a is None or op_b is None or shared_frames(comparison.a.call_path(op_a), comparison.b.call_path(op_b)):
        return []
    run = comparison.run(side)
    called_a, called_b = library_call(comparison.a, op_a), library_call(comparison.b, op_b)
    called = Pair(called_a, called_b).of(side)
    if called is None or (called_a and called_b and _function(called_a) == _function(called_b)):
        return []
    ops = set(ops_of_call(run, called))
    found = [region for region in comparison.regions if ops.intersection(ops_of(region, side))]
    return found if len(found) <= MAX_REGIONS else []


def _function(called: tuple[Frame, Frame]) -> tuple[str, str]:
    return called[1].file, called[1].function


def add_padded(comparison: Comparison, regions: Iterable[Region]) -> list[Region]:
    """Return regions, and those connected to them by tensors whose sizes differ between the sides."""
    found = {region.id: region for region in regions}
    while len(found) <= MAX_REGIONS:
        padded = {
            pair
            for region in found.values()
            for pair in (*region.inputs, *region.outputs)
            if _is_padded(comparison, pair)
        }
        more = [
            region
            for region in comparison.regions
            if region.id not in found and padded.intersection((*region.inputs, *region.outputs))
        ]
        if not more:
            break
        found |= {region.id: region for region in more}
    return list(found.values())


def join_regions(comparison: Comparison, regions: Iterable[Region]) -> Region:
    """Return several regions as one: its inputs come from outside, its outputs are read outside or returned."""
    members = sorted(regions, key=lambda region: region.id)
    ops = {side: tuple(sorted(op for region in members for op in ops_of(region, side))) for side in SIDES}
    made = [_made(comparison, side, ops[side]) for side in SIDES]
    inputs = dict.fromkeys(
        pair for region in members for pair in region.inputs if pair[0] not in made[0] and pair[1] not in made[1]
    )
    whole = Region(members[0].id, "equal", ops["a"], ops["b"], tuple(inputs), ())
    inside = [set(comparison.runnable_ops(whole, side)) for side in SIDES]
    outputs = dict.fromkeys(
        pair
        for region in members
        for pair in region.outputs
        if _leaves(comparison.a, pair[0], inside[0]) or _leaves(comparison.b, pair[1], inside[1])
    )
    return replace(whole, outputs=tuple(outputs))


def _made(comparison: Comparison, side: SideName, ops: tuple[int, ...]) -> set[int]:
    """Return the values that operators compute, and the copies and views of these values."""
    run, wanted, moving_ops = comparison.run(side), set(ops), comparison.moving_ops[side]
    found: set[int] = set()
    for op in run.ops:
        if op.id in wanted or (op.id in moving_ops and found.intersection(op.inputs)):
            found |= {*op.outputs, *op.writes}
    return found


def _leaves(run: Run, value: int, ops: set[int]) -> bool:
    """Return whether a value is read outside of some operators, or by none: then the step returns it."""
    readers = run.index.readers[value]
    return not readers or not ops.issuperset(readers)


def _is_padded(comparison: Comparison, pair: tuple[int, int]) -> bool:
    return math.prod(comparison.a.values[pair[0]].shape) != math.prod(comparison.b.values[pair[1]].shape)
