"""The smallest groups of operators of two runs with equal inputs and equal outputs.

Operators are joined where a tensor between them has no counterpart, and across the runs where they make equal
tensors. What is left between groups is equal on both sides, so a group ends at the first equal tensor. A tensor
without counterpart that many groups read (a mask, made once for all layers) joins none of them. A group whose sides
read different tensors is joined with what made the latest of these, until both read the same; one that stays
different is no region.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from joulediff.matching.joint_graph import Joint
from joulediff.matching.unions import Unions
from joulediff.model.finding import Region, RegionKind

# A tensor without counterpart is part of what reads it where that is no more groups than this.
SHARED = 2
# Groups are joined at most so often, and up to so many operators, to make their inputs equal.
_JOINS = 12
_PASSES = 50
_LARGEST = 400

Pairs = tuple[tuple[int, int], ...]


def find_regions(joint: Joint) -> list[Region]:
    """Return the regions of two runs, in the order of their first operators."""
    groups = Unions(len(joint.makes))
    deferred = _join_within(joint, groups)
    _join_across(joint, groups)
    _join_shared(joint, groups, deferred)
    parts = _settle(joint, groups)
    _pair_leftovers(joint, groups, parts)
    found = [*parts.values(), *_place_movers(joint, groups, parts)]
    found.sort(key=lambda part: _place(joint, part))
    return [
        Region(number, part.kind, tuple(sorted(part.a)), tuple(sorted(part.b)), part.inputs, part.outputs)
        for number, part in enumerate(found)
    ]


@dataclass(slots=True)
class _Part:
    """A region in the making."""

    kind: RegionKind
    a: list[int]
    b: list[int]
    inputs: Pairs = ()
    outputs: Pairs = ()


def _join_within(joint: Joint, groups: Unions) -> list[int]:
    """Join what makes a tensor without counterpart with its only reader; return those with several readers."""
    deferred = []
    for entity, anchor in enumerate(joint.anchor):
        makers, readers = joint.makers[entity], joint.readers[entity]
        if anchor >= 0 or not makers or not readers:
            continue
        for other in makers[1:]:
            groups.join(makers[0], other)
        if len(readers) == 1:
            groups.join(makers[0], readers[0])
        else:
            deferred.append(entity)
    return deferred


def _join_across(joint: Joint, groups: Unions) -> None:
    """Join what makes equal tensors in the two runs: the first with the first where one is computed several times."""
    made: defaultdict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for entity, anchor in enumerate(joint.anchor):
        if anchor >= 0 and joint.makers[entity]:
            made[anchor][int(entity >= joint.entities)].append(entity)
    for ours, theirs in made.values():
        for one, other in zip(_in_order(joint, ours), _in_order(joint, theirs), strict=False):
            for op in (*joint.makers[one][1:], *joint.makers[other]):
                groups.join(joint.makers[one][0], op)


def _in_order(joint: Joint, entities: Iterable[int]) -> list[int]:
    return sorted(entities, key=lambda entity: joint.makers[entity][0])


def _join_shared(joint: Joint, groups: Unions, entities: list[int]) -> None:
    """Join the makers of a tensor without counterpart with its readers, where these are one group, or a few."""
    entities = entities[::-1]  # what is read last is settled first
    for most in range(1, SHARED + 1):
        changed, passes = True, 0
        while changed and entities and passes < _PASSES:
            changed, left = False, []
            passes += 1
            for entity in entities:
                around = {groups.find(op) for op in joint.readers[entity]} - {groups.find(joint.makers[entity][0])}
                if len(around) <= most and (most == 1 or joint.is_derived[entity]):
                    for other in around:
                        changed |= groups.join(joint.makers[entity][0], other)
                else:
                    left.append(entity)
            entities = left


def _settle(joint: Joint, groups: Unions) -> dict[int, _Part]:
    """Return what each group is, after groups whose sides read different tensors have been joined with others."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for op in range(len(joint.makes)):
        if not joint.moves[op]:
            members[groups.find(op)].append(op)
    waiting, joins = sorted(members), dict.fromkeys(members, 0)
    parts: dict[int, _Part] = {}
    while waiting:
        group = waiting.pop()
        if group not in members:
            continue
        boundary = find_boundary(joint, members[group])
        other = None if boundary.is_equal else _maker_of_latest(joint, groups, boundary, group)
        if other is not None and joins[group] < _JOINS and len(members[group]) + len(members[other]) <= _LARGEST:
            groups.join(group, other)
            kept, gone = min(group, other), max(group, other)
            members[kept] = sorted(members[kept] + members.pop(gone))
            joins[kept] = joins[group] + joins[other] + 1
            parts.pop(group, None)
            parts.pop(other, None)
            waiting.append(kept)
        elif boundary.kind is not None:
            a = [op for op in members[group] if not joint.side_of(op)]
            b = [joint.own(op) for op in members[group] if joint.side_of(op)]
            parts[group] = _Part(boundary.kind, a, b, boundary.inputs, boundary.outputs)
    return parts


def _pair_leftovers(joint: Joint, groups: Unions, parts: dict[int, _Part]) -> None:
    """Make one region of two that have a side each: constants for the same readers, and what nothing reads."""
    found: defaultdict[object, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for group, part in parts.items():
        if part.kind in ("constant", "unused"):
            ops = part.a or [joint.ops + op for op in part.b]
            counts, readers = _use(joint, groups, parts, ops)
            if readers or part.kind == "unused":
                found[part.kind, counts, readers][joint.side_of(ops[0])].append(group)
    for ours, theirs in found.values():
        for one, other in zip(sorted(ours), sorted(theirs), strict=False):
            groups.join(one, other)
            part = parts.pop(one)
            part.b = parts.pop(other).b
            parts[groups.find(one)] = part


def _use(
    joint: Joint, groups: Unions, parts: dict[int, _Part], ops: list[int]
) -> tuple[tuple[float, ...], frozenset[int]]:
    """Return what operators of one side make, by size, and which regions with two sides read it."""
    own, made = set(ops), [entity for op in ops for entity in joint.makes[op]]
    readers = {groups.find(op) for entity in made for op in joint.readers[entity]}
    counts = [_count(joint, entity) for entity in made if own.isdisjoint(joint.readers[entity])]
    return tuple(sorted(counts)), frozenset(each for each in readers if each in parts and parts[each].kind == "equal")


def _count(joint: Joint, entity: int) -> float:
    side = joint.sides[int(entity >= joint.entities)]
    return float(side.features.counts[joint.values[entity][0]])


def _maker_of_latest(joint: Joint, groups: Unions, boundary: Boundary, group: int) -> int | None:
    """Return the group that makes the latest tensor which only one side reads; None if there is none."""
    makers = [joint.makers[entity][0] for entity in boundary.unlike if joint.makers[entity]]
    others = [op for op in makers if groups.find(op) != group]
    return groups.find(max(others, key=joint.share)) if others else None


def _place(joint: Joint, part: _Part) -> tuple[float, float]:
    """Return where a region lies in the two runs, from 0 to 1."""
    places = [min(part.a) / joint.ops] if part.a else []
    places += [min(part.b) / (len(joint.makes) - joint.ops)] if part.b else []
    return min(places), max(places)


def _place_movers(joint: Joint, groups: Unions, parts: dict[int, _Part]) -> Iterator[_Part]:
    """Put operators that move a tensor without counterpart into the region it belongs to; yield all others.

    Those that move equal tensors alike in both runs are one region, others stand alone.
    """
    found: defaultdict[tuple[float, object], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for entity, movers in enumerate(joint.movers):
        host = (joint.makers[entity] or joint.readers[entity])[:1] if movers and joint.anchor[entity] < 0 else []
        part = parts.get(groups.find(host[0])) if host else None
        if host and part is None:
            continue
        for op in movers:
            if part is not None and part.kind == "equal":
                (part.b if joint.side_of(op) else part.a).append(joint.own(op))
            else:
                key = joint.anchor[entity] if joint.anchor[entity] >= 0 else -1.0 - _count(joint, entity)
                found[key, _form(joint, op)][joint.side_of(op)].append(joint.own(op))
    for ours, theirs in found.values():
        paired = min(len(ours), len(theirs))
        for one, other in zip(ours, theirs, strict=False):
            yield _Part("movement", [one], [other], *_moved(joint, one, other))
        for one in ours[paired:]:
            yield _Part("movement", [one], [])
        for other in theirs[paired:]:
            yield _Part("movement", [], [other])


def _moved(joint: Joint, one: int, other: int) -> tuple[Pairs, Pairs]:
    """Return what two operators that move equal tensors read, and make."""
    a, b = joint.sides[0].graph, joint.sides[1].graph
    reads = zip(a.reads[one][:1], b.reads[other][:1], strict=False)
    return tuple(reads), tuple(zip(a.makes[one][:1], b.makes[other][:1], strict=False))


def _form(joint: Joint, op: int) -> object:
    """Return what an operator makes of a tensor: its shape and the order of its elements."""
    graph, own = joint.sides[joint.side_of(op)].graph, joint.own(op)
    values = [graph.run.values[value] for value in graph.makes[own] or graph.reads[own]]
    return tuple((value.shape, value.strides) for value in values)


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
