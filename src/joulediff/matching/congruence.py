"""Tensors that the same operator computes from equal tensors.

The same operator, with the same arguments and equal inputs, has equal outputs. So tensors that values alone do not
identify get anchors too: constants, masks, positions, tensors with NaN, and values that repeat or converge in a loop.
Their signatures must agree nevertheless: a random number generator, for one, returns other numbers each time. Constants
have no inputs: they must be used for the same too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from joulediff.matching.anchor_support import are_equal, signature_of
from joulediff.matching.joint_graph import JointGraph


def add_congruent_anchors(joint: JointGraph, tolerance: float) -> None:
    """Give anchors to entities without one that the same operator computes from equal entities in both runs."""
    names: list[Hashable] = [None] * len(joint.anchor_of)
    numbers: dict[Hashable, int] = {}
    seen: tuple[defaultdict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
    number = max(joint.anchor_of, default=-1) + 1
    uses = _find_uses(joint)
    for op in range(len(joint.makes)):
        if not joint.makes[op]:
            continue
        side = joint.side_of_op(op)
        found = joint.sides[side].graph.run.ops[joint.number_in_run(op)]
        inputs = tuple([_name(joint, names, each) for each in joint.reads[op]])
        use = None if any(joint.is_derived[each] for each in joint.reads[op]) else uses[op]
        if use == -1 and not joint.reads[op]:
            continue  # nothing tells it from the constants of other layers
        key: Hashable = (found.name, found.overload, found.arguments, len(joint.makes[op]), inputs, use)
        kind = numbers.setdefault(key, len(numbers))
        seen[side][kind].append(op)
        place = len(seen[side][kind]) - 1
        other = seen[0][kind][place] if side == 1 and place < len(seen[0][kind]) else None
        for at, entity in enumerate(joint.makes[op]):
            if joint.anchor_of[entity] >= 0:
                continue
            names[entity] = (kind, at) if side == 0 else ("alone", entity)
            if other is None:
                continue
            theirs = joint.makes[other][at]
            if joint.anchor_of[theirs] < 0 and _may_be_equal(joint, theirs, entity, tolerance):
                names[entity] = names[theirs]
                joint.anchor_of[theirs] = joint.anchor_of[entity] = number
                number += 1


def _find_uses(joint: JointGraph) -> list[int]:
    """Return for each operator the first anchor computed from its outputs, by number; -1 if there is none."""
    found = [-1] * len(joint.makes)
    for op in range(len(found) - 1, -1, -1):
        uses = [
            joint.anchor_of[made] if joint.anchor_of[made] >= 0 else found[reader]
            for entity in joint.makes[op]
            for reader in joint.readers[entity]
            for made in joint.makes[reader]
        ]
        found[op] = min((each for each in uses if each >= 0), default=-1)
    return found


def _name(joint: JointGraph, names: list[Hashable], entity: int) -> Hashable:
    """Return what an entity is called in both runs: its anchor, the operator that computes it, or its signature."""
    if names[entity] is None:
        signature = signature_of(joint, entity)
        alone = ("alone", entity) if signature is None or joint.makers[entity] else signature
        names[entity] = joint.anchor_of[entity] if joint.anchor_of[entity] >= 0 else alone
    return names[entity]


def _may_be_equal(joint: JointGraph, one: int, other: int, tolerance: float) -> bool:
    a, b = signature_of(joint, one), signature_of(joint, other)
    if a is None or b is None:
        return a is b
    return are_equal(joint, one, other, tolerance)
