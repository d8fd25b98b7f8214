"""Regions: the smallest groups of operators of two runs with equal inputs and equal outputs.

Operators of one run are merged if the tensor between them has no anchor, and operators of both runs if they make equal
tensors. All tensors between groups are then equal in both runs, so a group ends at the first equal tensor. A tensor
without an anchor that many groups read (a mask, made once for all layers) merges none of them. A group whose sides read
different tensors is merged with the maker of the latest of these until both sides read the same; a group that stays
different is no region. Regions with operators of one compiled kernel are merged at the end: their energy is that of the
kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from joulediff.matching.disjoint_sets import DisjointSets
from joulediff.matching.enclosing.enclose import enclose
from joulediff.matching.enclosing.op_pairs import Ops, Wiring, pair_ops
from joulediff.matching.joint_graph import JointGraph
from joulediff.model.finding import Basis, Region, RegionKind

# A tensor without an anchor merges its maker with its readers if these are at most this many groups.
SHARED = 2
# Limits on merges: how often one group is merged to make its inputs equal, passes over shared tensors, and
# how many operators a merged group may have.
_MERGES = 12
_PASSES = 50
_LARGEST = 400
# A region with more operators on both sides is split by structure, if this share of them have a counterpart.
LARGE, ALIKE = 15, 0.5

Pairs = tuple[tuple[int, int], ...]


def find_regions(joint: JointGraph) -> list[Region]:
    """Return the regions of two runs, in the order of their first operators."""
    groups = DisjointSets(len(joint.makes))
    deferred = _merge_within_run(joint, groups)
    _merge_across_runs(joint, groups)
    _merge_shared(joint, groups, deferred)
    drafts = _align_inputs(joint, groups)
    _pair_one_sided(joint, groups, drafts)
    found = [*drafts.values(), *_assign_movement(joint, groups, drafts)]
    wiring = Wiring(joint)
    found = [part for draft in found for part in _split_large(joint, wiring, draft)]
    found += _enclose_others(joint, wiring, found)
    found = _merge_fused(joint, found)
    found.sort(key=lambda draft: _position(joint, draft))
    return [
        Region(
            number,
            draft.kind,
            tuple(sorted(draft.a)),
            tuple(sorted(draft.b)),
            draft.inputs,
            draft.outputs,
            draft.basis,
        )
        for number, draft in enumerate(found)
    ]


@dataclass(slots=True)
class _RegionDraft:
    """A region under construction."""

    kind: RegionKind
    a: list[int]
    b: list[int]
    inputs: Pairs = ()
    outputs: Pairs = ()
    basis: Basis = "equal"


def _split_large(joint: JointGraph, wiring: Wiring, draft: _RegionDraft) -> list[_RegionDraft]:
    """Return the parts of a region without equal tensors inside, such as a padded model; else the region itself."""
    if draft.kind != "equal" or min(len(draft.a), len(draft.b)) <= LARGE:
        return [draft]
    groups = pair_ops(wiring, sorted(draft.a), [joint.first_op_of_b + op for op in sorted(draft.b)])
    pairs = sum(len(ours) == len(theirs) == 1 for ours, theirs in groups)
    if pairs < ALIKE * max(len(draft.a), len(draft.b)):
        return [draft]
    return [_to_call_draft(joint, group) for group in groups]


def _enclose_others(joint: JointGraph, wiring: Wiring, found: Iterable[_RegionDraft]) -> list[_RegionDraft]:
    """Return regions of the operators that are in none, where they belong to calls whose outputs agree."""
    left = set(range(len(joint.makes)))
    for draft in found:
        left.difference_update(draft.a, (joint.first_op_of_b + op for op in draft.b))
    return [_to_call_draft(joint, group) for group in enclose(joint, wiring, left)]


def _merge_fused(joint: JointGraph, found: list[_RegionDraft]) -> list[_RegionDraft]:
    """Merge the regions that share a kernel of compiled code, on either side."""
    groups = DisjointSets(len(found))
    first: dict[tuple[int, int], int] = {}
    for number, draft in enumerate(found):
        for side, ops in enumerate((draft.a, draft.b)):
            fused = joint.sides[side].graph.run.index.fused
            for op in ops:
                if op in fused:
                    groups.merge(first.setdefault((side, fused[op]), number), number)
    parts: defaultdict[int, list[_RegionDraft]] = defaultdict(list)
    for number, draft in enumerate(found):
        parts[groups.find(number)].append(draft)
    return [each[0] if len(each) == 1 else _join_drafts(joint, each) for each in parts.values()]


def _join_drafts(joint: JointGraph, drafts: list[_RegionDraft]) -> _RegionDraft:
    a = sorted(op for draft in drafts for op in draft.a)
    b = sorted(op for draft in drafts for op in draft.b)
    boundary = find_boundary(joint, [*a, *(joint.first_op_of_b + op for op in b)])
    kinds = {draft.kind for draft in drafts}
    kind: RegionKind = drafts[0].kind if len(kinds) == 1 else "equal"
    is_equal = boundary.is_equal and all(draft.basis == "equal" for draft in drafts)
    return _RegionDraft(kind, a, b, boundary.inputs, boundary.outputs, "equal" if is_equal else "call")


def _to_call_draft(joint: JointGraph, group: Ops) -> _RegionDraft:
    ours, theirs = group
    boundary = find_boundary(joint, [*ours, *theirs])
    numbers = [joint.number_in_run(op) for op in theirs]
    basis: Basis = "equal" if _have_equal_tensors(joint, ours, theirs) else "call"
    kind: RegionKind = "movement" if all(joint.is_movement[op] for op in (*ours, *theirs)) else "equal"
    return _RegionDraft(kind, ours, numbers, boundary.inputs, boundary.outputs, basis)


def _have_equal_tensors(joint: JointGraph, ours: Iterable[int], theirs: Iterable[int]) -> bool:
    """Return whether operators of both sides read equal tensors and make equal tensors."""
    for entities in (joint.reads, joint.makes):
        a, b = ({joint.anchor_of[entity] for op in ops for entity in entities[op]} for ops in (ours, theirs))
        if a != b or not a or -1 in a:
            return False
    return True


def _merge_within_run(joint: JointGraph, groups: DisjointSets) -> list[int]:
    """Merge the makers of each tensor without an anchor with its only reader; return tensors with several readers."""
    deferred = []
    for entity, anchor in enumerate(joint.anchor_of):
        makers, readers = joint.makers[entity], joint.readers[entity]
        if anchor >= 0 or not makers or not readers:
            continue
        for other in makers[1:]:
            groups.merge(makers[0], other)
        if len(readers) == 1:
            groups.merge(makers[0], readers[0])
        else:
            deferred.append(entity)
    return deferred


def _merge_across_runs(joint: JointGraph, groups: DisjointSets) -> None:
    """Merge the makers of equal tensors of both runs; the n-th computation of one with the n-th of the other."""
    made: defaultdict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for entity, anchor in enumerate(joint.anchor_of):
        if anchor >= 0 and joint.makers[entity]:
            made[anchor][joint.side_of_entity(entity)].append(entity)
    for ours, theirs in made.values():
        for one, other in zip(_sort_by_maker(joint, ours), _sort_by_maker(joint, theirs), strict=False):
            for op in (*joint.makers[one][1:], *joint.makers[other]):
                groups.merge(joint.makers[one][0], op)


def _sort_by_maker(joint: JointGraph, entities: Iterable[int]) -> list[int]:
    return sorted(entities, key=lambda entity: joint.makers[entity][0])


def _merge_shared(joint: JointGraph, groups: DisjointSets, entities: list[int]) -> None:
    """Merge the makers of tensors without an anchor with their readers, if these are one group or a few."""
    entities = entities[::-1]  # tensors that are read last come first
    for most in range(1, SHARED + 1):
        changed, passes = True, 0
        while changed and entities and passes < _PASSES:
            changed, left = False, []
            passes += 1
            for entity in entities:
                around = {groups.find(op) for op in joint.readers[entity]} - {groups.find(joint.makers[entity][0])}
                if len(around) <= most and (most == 1 or joint.is_derived[entity]):
                    for other in around:
                        changed |= groups.merge(joint.makers[entity][0], other)
                else:
                    left.append(entity)
            entities = left


def _align_inputs(joint: JointGraph, groups: DisjointSets) -> dict[int, _RegionDraft]:
    """Merge groups whose sides read different tensors with others; return the drafts of all groups that are regions."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for op in range(len(joint.makes)):
        if not joint.is_movement[op]:
            members[groups.find(op)].append(op)
    waiting, merges = sorted(members), dict.fromkeys(members, 0)
    drafts: dict[int, _RegionDraft] = {}
    while waiting:
        group = waiting.pop()
        if group not in members:
            continue
        boundary = find_boundary(joint, members[group])
        other = None if boundary.is_equal else _find_maker_of_latest(joint, groups, boundary, group)
        if other is not None and merges[group] < _MERGES and len(members[group]) + len(members[other]) <= _LARGEST:
            groups.merge(group, other)
            kept, gone = min(group, other), max(group, other)
            members[kept] = sorted(members[kept] + members.pop(gone))
            merges[kept] = merges[group] + merges[other] + 1
            drafts.pop(group, None)
            drafts.pop(other, None)
            waiting.append(kept)
        elif boundary.kind is not None:
            a = [op for op in members[group] if not joint.side_of_op(op)]
            b = [joint.number_in_run(op) for op in members[group] if joint.side_of_op(op)]
            drafts[group] = _RegionDraft(boundary.kind, a, b, boundary.inputs, boundary.outputs)
    return drafts


def _pair_one_sided(joint: JointGraph, groups: DisjointSets, drafts: dict[int, _RegionDraft]) -> None:
    """Merge a region that only a has with one that only b has: constants with the same readers, and unused tensors."""
    found: defaultdict[object, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for group, draft in drafts.items():
        if draft.kind in ("constant", "unused"):
            ops = draft.a or [joint.first_op_of_b + op for op in draft.b]
            counts, readers = _find_usage(joint, groups, drafts, ops)
            if readers or draft.kind == "unused":
                found[draft.kind, counts, readers][joint.side_of_op(ops[0])].append(group)
    for ours, theirs in found.values():
        for one, other in zip(sorted(ours), sorted(theirs), strict=False):
            groups.merge(one, other)
            draft = drafts.pop(one)
            draft.b = drafts.pop(other).b
            drafts[groups.find(one)] = draft


def _find_usage(
    joint: JointGraph, groups: DisjointSets, drafts: dict[int, _RegionDraft], ops: list[int]
) -> tuple[tuple[float, ...], frozenset[int]]:
    """Return the sizes of the tensors that operators of one side make, and the two-sided regions that read them."""
    own, made = set(ops), [entity for op in ops for entity in joint.makes[op]]
    readers = {groups.find(op) for entity in made for op in joint.readers[entity]}
    counts = [_element_count(joint, entity) for entity in made if own.isdisjoint(joint.readers[entity])]
    return tuple(sorted(counts)), frozenset(each for each in readers if each in drafts and drafts[each].kind == "equal")


def _element_count(joint: JointGraph, entity: int) -> float:
    side = joint.sides[joint.side_of_entity(entity)]
    return float(side.features.counts[joint.values[entity][0]]) if joint.values[entity] else 0.0


def _find_maker_of_latest(joint: JointGraph, groups: DisjointSets, boundary: Boundary, group: int) -> int | None:
    """Return the group that makes the latest tensor that only one side reads; None if there is none."""
    makers = [joint.makers[entity][0] for entity in boundary.unlike if joint.makers[entity]]
    others = [op for op in makers if groups.find(op) != group]
    return groups.find(max(others, key=joint.position)) if others else None


def _position(joint: JointGraph, draft: _RegionDraft) -> tuple[float, float]:
    """Return the positions of a region in the two runs, from 0 to 1, the earlier first."""
    places = [min(draft.a) / joint.first_op_of_b] if draft.a else []
    places += [min(draft.b) / (len(joint.makes) - joint.first_op_of_b)] if draft.b else []
    return min(places), max(places)


def _assign_movement(
    joint: JointGraph, groups: DisjointSets, drafts: dict[int, _RegionDraft]
) -> Iterator[_RegionDraft]:
    """Add operators that move a tensor without an anchor to the region of that tensor; yield regions of the others.

    Operators that move equal tensors into the same layout in both runs form one region; each other one has its own.
    """
    found: defaultdict[tuple[float, object], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for entity, movers in enumerate(joint.movers):
        host = (joint.makers[entity] or joint.readers[entity])[:1] if movers and joint.anchor_of[entity] < 0 else []
        draft = drafts.get(groups.find(host[0])) if host else None
        if host and draft is None:
            continue
        for op in movers:
            if draft is not None and draft.kind == "equal":
                (draft.b if joint.side_of_op(op) else draft.a).append(joint.number_in_run(op))
            else:
                key = joint.anchor_of[entity] if joint.anchor_of[entity] >= 0 else -1.0 - _element_count(joint, entity)
                found[key, _made_layouts(joint, op)][joint.side_of_op(op)].append(joint.number_in_run(op))
    for ours, theirs in found.values():
        paired = min(len(ours), len(theirs))
        for one, other in zip(ours, theirs, strict=False):
            yield _RegionDraft("movement", [one], [other], *_moved_tensors(joint, one, other))
        for one in ours[paired:]:
            yield _RegionDraft("movement", [one], [])
        for other in theirs[paired:]:
            yield _RegionDraft("movement", [], [other])


def _moved_tensors(joint: JointGraph, one: int, other: int) -> tuple[Pairs, Pairs]:
    """Return the pair of tensors that two moving operators read, and the pair that they make."""
    a, b = joint.sides[0].graph, joint.sides[1].graph
    reads = zip(a.reads[one][:1], b.reads[other][:1], strict=False)
    return tuple(reads), tuple(zip(a.makes[one][:1], b.makes[other][:1], strict=False))


def _made_layouts(joint: JointGraph, op: int) -> object:
    """Return the shapes and strides of the tensors that an operator makes."""
    graph, own = joint.sides[joint.side_of_op(op)].graph, joint.number_in_run(op)
    values = [graph.run.values[value] for value in graph.makes[own] or graph.reads[own]]
    return tuple((value.shape, value.strides) for value in values)


@dataclass(frozen=True, slots=True)
class Boundary:
    """The tensors at the boundary of a group."""

    is_equal: bool
    kind: RegionKind | None
    """None for operators without a counterpart."""
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    unlike: tuple[int, ...]
    """Entities with an anchor that only one side reads."""


def find_boundary(joint: JointGraph, ops: Iterable[int]) -> Boundary:
    """Return the boundary of a group."""
    sides: tuple[list[int], list[int]] = ([], [])
    for op in ops:
        sides[joint.side_of_op(op)].append(op)
    group = set(ops)
    made = [_list_made(joint, side) for side in sides]
    read = [_list_read(joint, side, inside) for side, inside in zip(sides, made, strict=True)]
    anchors = [{joint.anchor_of[entity]: entity for entity in each if joint.anchor_of[entity] >= 0} for each in read]
    if not all(sides):
        return Boundary(True, _kind_alone(joint, made[0] | made[1], group), (), (), ())
    # Constants are left out: different work may read the same constants.
    wholes = [joint.merge_parts(each) for each in anchors]
    unlike = [
        entity
        for mine, whole, theirs in ((anchors[0], wholes[0], wholes[1]), (anchors[1], wholes[1], wholes[0]))
        for anchor, entity in mine.items()
        if anchor in whole and anchor not in theirs and joint.is_derived[entity]
    ]
    equal = not unlike
    outputs = _pair_outputs(joint, made, group)
    inputs = _pair_values(
        joint, [(anchors[0][n], anchors[1][n]) for n in sorted(anchors[0].keys() & anchors[1].keys())]
    )
    return Boundary(equal, "equal" if equal else None, inputs, outputs, tuple(unlike))


def _list_made(joint: JointGraph, ops: Iterable[int]) -> dict[int, None]:
    return dict.fromkeys(entity for op in ops for entity in joint.makes[op])


def _list_read(joint: JointGraph, ops: Iterable[int], made: dict[int, None]) -> dict[int, None]:
    """Return the entities that operators read and do not make, neither themselves nor as an equal tensor.

    A tensor given to the step counts as read in any case: a batch norm returns the mean that it reads as an output.
    """
    inside = {joint.anchor_of[entity] for entity in made} - {-1}
    return {
        entity: None
        for op in ops
        for entity in joint.reads[op]
        if entity not in made and not (joint.makers[entity] and joint.anchor_of[entity] in inside)
    }


def _is_read_outside(joint: JointGraph, entity: int, group: set[int]) -> bool:
    return joint.is_kept[entity] or any(op not in group for op in joint.readers[entity])


def _pair_outputs(joint: JointGraph, made: list[dict[int, None]], group: set[int]) -> Pairs:
    theirs = {joint.anchor_of[entity]: entity for entity in made[1] if joint.anchor_of[entity] >= 0}
    found = []
    for entity in made[0]:
        other = theirs.get(joint.anchor_of[entity])
        if other is not None and (_is_read_outside(joint, entity, group) or _is_read_outside(joint, other, group)):
            found.append((entity, other))
    return _pair_values(joint, found)


def _pair_values(joint: JointGraph, entities: Iterable[tuple[int, int]]) -> Pairs:
    """Return the first values of pairs of entities; not of the parts of a merged tensor, which have none."""
    return tuple((joint.values[a][0], joint.values[b][0]) for a, b in entities if joint.values[a] and joint.values[b])


def _kind_alone(joint: JointGraph, made: dict[int, None], group: set[int]) -> RegionKind | None:
    """Return the kind of a group that has operators of one side only; None if it has no known purpose."""
    leaving = [entity for entity in made if _is_read_outside(joint, entity, group)]
    if not leaving:
        return "unused"
    if all(joint.is_constant[entity] for entity in leaving):
        return "constant"
    if all(joint.anchor_of[entity] >= 0 for entity in leaving):
        return "repeated"
    return None
