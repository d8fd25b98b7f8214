"""What goes into a group of operators of two runs and what comes out of it, and whether both sides agree.

Weights that only one side has are no reason to doubt: one run may hold them fused or folded into others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from joulediff.findings import RegionKind
from joulediff.matching.joint import Joint


@dataclass(frozen=True, slots=True)
class Boundary:
    """The tensors at the edge of a group."""

    is_paired: bool
    """Both sides have operators."""
    is_equal: bool
    kind: RegionKind | None
    """None for operators of one side that nothing accounts for."""
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    unlike: tuple[int, ...]
    """Entities with an anchor that only one side reads."""


def find_boundary(joint: Joint, ops: Iterable[int]) -> Boundary:
    """Return the boundary of a group."""
    sides: tuple[list[int], list[int]] = ([], [])
    for op in ops:
        sides[joint.side_of(op)].append(op)
    group = set(ops)
    made = [_made(joint, side) for side in sides]
    read = [_read(joint, side, inside) for side, inside in zip(sides, made, strict=True)]
    anchors = [{joint.anchor[entity]: entity for entity in each if joint.anchor[entity] >= 0} for each in read]
    if not all(sides):
        return Boundary(False, True, _kind_alone(joint, made[0] | made[1], group), (), (), ())
    # Constants say nothing about what is computed from them.
    wholes = [joint.put_together(each) for each in anchors]
    unlike = [
        entity
        for mine, whole, theirs in ((anchors[0], wholes[0], wholes[1]), (anchors[1], wholes[1], wholes[0]))
        for anchor, entity in mine.items()
        if anchor in whole and anchor not in theirs and joint.is_derived[entity]
    ]
    equal = not unlike
    outputs = _outputs(joint, made, group)
    inputs = tuple(
        (_value(joint, anchors[0][anchor]), _value(joint, anchors[1][anchor]))
        for anchor in sorted(anchors[0].keys() & anchors[1].keys())
    )
    return Boundary(True, equal, "equal" if equal else None, inputs, outputs, tuple(unlike))


def _made(joint: Joint, ops: Iterable[int]) -> dict[int, None]:
    return dict.fromkeys(entity for op in ops for entity in joint.makes[op])


def _read(joint: Joint, ops: Iterable[int], made: dict[int, None]) -> dict[int, None]:
    """Return what operators read and do not make, by themselves or as an equal.

    What the step was given is read even so: a batch norm hands the mean that it reads on as one that it made.
    """
    inside = {joint.anchor[entity] for entity in made} - {-1}
    return {
        entity: None
        for op in ops
        for entity in joint.reads[op]
        if entity not in made and not (joint.makers[entity] and joint.anchor[entity] in inside)
    }


def _leaves(joint: Joint, entity: int, group: set[int]) -> bool:
    return joint.is_kept[entity] or any(op not in group for op in joint.readers[entity])


def _outputs(joint: Joint, made: list[dict[int, None]], group: set[int]) -> tuple[tuple[int, int], ...]:
    theirs = {joint.anchor[entity]: entity for entity in made[1] if joint.anchor[entity] >= 0}
    found = []
    for entity in made[0]:
        other = theirs.get(joint.anchor[entity])
        if other is not None and (_leaves(joint, entity, group) or _leaves(joint, other, group)):
            found.append((_value(joint, entity), _value(joint, other)))
    return tuple(found)


def _value(joint: Joint, entity: int) -> int:
    return joint.values[entity][0]


def _kind_alone(joint: Joint, made: dict[int, None], group: set[int]) -> RegionKind | None:
    """Return what the operators of one side are for; None if that is not known."""
    leaving = [entity for entity in made if _leaves(joint, entity, group)]
    if not leaving:
        return "unused"
    if all(joint.is_free[entity] for entity in leaving):
        return "constant"
    if all(joint.anchor[entity] >= 0 for entity in leaving):
        return "repeated"
    return None
