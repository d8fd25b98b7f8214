"""Several regions as one: all that a call of the user's own code does, or all that padding lies between.

A region is as small as values allow. Two ways to write one function share some of their intermediate tensors by chance,
and each small region between them would be tried and told alone; what somebody can change is the call. And a tensor
that equals another but for zeros cannot stand for it where operators are run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.evidence.deviation import shared_frames
from joulediff.model.finding import Region
from joulediff.model.pair import SIDES, SideName
from joulediff.model.run import Frame, Run

# More regions than this are no single function.
MAX_REGIONS = 200
_WRAPPER = "<locals>"


def library_call(run: Run, op: int) -> tuple[Frame, Frame] | None:
    """Return the line of the user's own code that led to an operator, and the function of a library that it calls."""
    path = run.call_path(op)
    own = [at for at, frame in enumerate(path) if frame.owner is None]
    if not own or own[-1] + 1 >= len(path):
        return None
    called = path[own[-1] + 1 :]
    # A wrapper that a decorator made is nobody's name for the function.
    return path[own[-1]], next((frame for frame in called if _WRAPPER not in frame.function), called[0])


def whole_call(sides: Comparison, side: SideName, op_a: int | None, op_b: int | None) -> list[Region]:
    """Return all regions of the library's function that the user's code calls for an operator of a side.

    None of them where both sides call that function: then what parts them is inside it.
    """
    if op_a is None or op_b is None or shared_frames(sides.a.call_path(op_a), sides.b.call_path(op_b)):
        return []
    run = sides.run(side)
    called_a, called_b = library_call(sides.a, op_a), library_call(sides.b, op_b)
    called = called_a if side == "a" else called_b
    if called is None or (called_a and called_b and _function(called_a) == _function(called_b)):
        return []
    key = _key(called)
    ops = {each.id for each in run.ops if (other := library_call(run, each.id)) is not None and _key(other) == key}
    found = [region for region in sides.regions if ops.intersection(ops_of(region, side))]
    return found if len(found) <= MAX_REGIONS else []


def _key(called: tuple[Frame, Frame]) -> tuple[str, int, str, str]:
    return called[0].file, called[0].line, *_function(called)


def _function(called: tuple[Frame, Frame]) -> tuple[str, str]:
    return called[1].file, called[1].function


def widen(sides: Comparison, regions: Iterable[Region]) -> list[Region]:
    """Return regions with those before and after them, as far as what lies between has other counts of elements."""
    found = {region.id: region for region in regions}
    while len(found) <= MAX_REGIONS:
        padded = {
            pair for region in found.values() for pair in (*region.inputs, *region.outputs) if _is_padded(sides, pair)
        }
        more = [
            region
            for region in sides.regions
            if region.id not in found and padded.intersection((*region.inputs, *region.outputs))
        ]
        if not more:
            break
        found |= {region.id: region for region in more}
    return list(found.values())


def join(sides: Comparison, regions: Iterable[Region]) -> Region:
    """Return several regions as one: what it reads comes from without, what it makes is read there or returned."""
    members = sorted(regions, key=lambda region: region.id)
    ops = {side: tuple(sorted(op for region in members for op in ops_of(region, side))) for side in SIDES}
    made = [_made(sides, side, ops[side]) for side in SIDES]
    inputs = dict.fromkeys(
        pair for region in members for pair in region.inputs if pair[0] not in made[0] and pair[1] not in made[1]
    )
    whole = Region(members[0].id, "equal", ops["a"], ops["b"], tuple(inputs), ())
    inside = [set(sides.slice_of(whole, side)) for side in SIDES]
    outputs = dict.fromkeys(
        pair
        for region in members
        for pair in region.outputs
        if _leaves(sides.a, pair[0], inside[0]) or _leaves(sides.b, pair[1], inside[1])
    )
    return replace(whole, outputs=tuple(outputs))


def _made(sides: Comparison, side: SideName, ops: tuple[int, ...]) -> set[int]:
    """Return what operators make, and what others that only bring tensors make of it."""
    run, wanted, carriers = sides.run(side), set(ops), sides.carriers[side]
    found: set[int] = set()
    for op in run.ops:
        if op.id in wanted or (op.id in carriers and found.intersection(op.inputs)):
            found |= {*op.outputs, *op.writes}
    return found


def _leaves(run: Run, value: int, ops: set[int]) -> bool:
    """Return whether a value is read outside of some operators, or by nothing: then the step returns it."""
    readers = run.index.readers[value]
    return not readers or not ops.issuperset(readers)


def _is_padded(sides: Comparison, pair: tuple[int, int]) -> bool:
    return math.prod(sides.a.values[pair[0]].shape) != math.prod(sides.b.values[pair[1]].shape)
