"""One graph of the operators and entities of two runs, with the anchors between them.

Operators and entities of b are numbered after those of a; parts of a tensor that only the other run has as tensors are
numbered last (`split`). An entity is a tensor with all its views, copies and casts.
The anchor of an entity is the number of the pair that its class belongs to, or -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.matching.anchors import AnalysedRun, Anchor

# Types of indices, counts and masks.
_INDICES = ("int", "uint", "bool")


@dataclass(slots=True)
class JointGraph:
    """Both runs. Operators that only move data have no edges: they lead from an entity to itself."""

    sides: tuple[AnalysedRun, AnalysedRun]
    first_op_of_b: int
    """Number of the first operator of b, which is the count of those of a."""
    first_entity_of_b: int
    entity_sides: list[int] = field(default_factory=list)
    """By entity: 0 for one of a, 1 for one of b."""
    makes: list[list[int]] = field(default_factory=list)
    """By operator: the entities it computes."""
    reads: list[list[int]] = field(default_factory=list)
    """By operator: the entities it reads."""
    makers: list[list[int]] = field(default_factory=list)
    """By entity: the operators that compute it; none for a tensor that existed before the step."""
    readers: list[list[int]] = field(default_factory=list)
    """By entity: the operators that read it."""
    is_movement: list[bool] = field(default_factory=list)
    """By operator: whether it only moves data."""
    movers: list[list[int]] = field(default_factory=list)
    """By entity: the operators that move it."""
    anchor_of: list[int] = field(default_factory=list)
    """By entity: the number of its anchor; -1 for none."""
    is_strong: list[bool] = field(default_factory=list)
    """By entity: whether it can be recognised by its features."""
    is_kept: list[bool] = field(default_factory=list)
    """By entity: whether it outlives the step, or its readers read the whole or the parts of it instead."""
    is_derived: list[bool] = field(default_factory=list)
    """By entity: whether it depends on a tensor given to the step, other than constants and indices."""
    is_constant: list[bool] = field(default_factory=list)
    """By entity: whether it depends on nothing but indices given to the step: a constant, a mask, a position."""
    values: list[list[int]] = field(default_factory=list)
    """By entity: its values."""
    given_anchors: set[int] = field(default_factory=set)
    """Anchors of tensors that existed before the step in both runs."""
    wholes: dict[int, list[tuple[int, frozenset[int]]]] = field(default_factory=dict)
    """By the anchor of the first part: the anchor of the whole and those of all its parts."""

    def merge_parts(self, anchors: Iterable[int]) -> set[int]:
        """Return anchors in which a whole replaces its parts, where all of these are present."""
        found = set(anchors)
        for first in sorted(found):
            for whole, parts in self.wholes.get(first, ()):
                if parts <= found:
                    found = found - parts | {whole}
        return found

    def side_of_op(self, op: int) -> int:
        """Return 0 for an operator of a, 1 for one of b."""
        return int(op >= self.first_op_of_b)

    def side_of_entity(self, entity: int) -> int:
        """Return 0 for an entity of a, 1 for one of b."""
        return self.entity_sides[entity]

    def split(self, whole: int, parts: Sequence[int]) -> None:
        """Replace a tensor by parts, which are tensors of the other run: its makers make them, its readers read them.

        Each part gets an anchor together with the tensor of the other run.
        """
        number = max(self.anchor_of, default=-1) + 1
        made, read = self.makers[whole], self.readers[whole]
        for op in made:
            self.makes[op].remove(whole)
        for op in read:
            self.reads[op].remove(whole)
        self.makers[whole], self.readers[whole] = [], []
        for at, part in enumerate(parts):
            mine = len(self.anchor_of)
            for op in made:
                self.makes[op].append(mine)
            for op in read:
                self.reads[op].append(mine)
            self.makers.append(list(made))
            self.readers.append(list(read))
            self.movers.append(self.movers[whole] if at == 0 else [])
            self.anchor_of.append(number + at)
            self.anchor_of[part] = number + at
            self.entity_sides.append(self.entity_sides[whole])
            self.values.append([])
            for table in (self.is_strong, self.is_kept, self.is_derived, self.is_constant):
                table.append(table[whole])
            if not made and not self.makers[part]:
                self.given_anchors.add(number + at)
        self.movers[whole] = []
        self.is_kept[whole] = False

    def number_in_run(self, op: int) -> int:
        """Return the number of an operator in its own run."""
        return op - self.first_op_of_b if op >= self.first_op_of_b else op

    def position(self, op: int) -> float:
        """Return the position of an operator in its run, from 0 to 1."""
        return self.number_in_run(op) / len(self.sides[self.side_of_op(op)].graph.run.ops)


def to_joint_graph(a: AnalysedRun, b: AnalysedRun, anchors: Sequence[Anchor]) -> JointGraph:
    """Return the joint graph of two runs; an anchor has its place in `anchors` as its number."""
    joint = JointGraph((a, b), len(a.graph.run.ops), a.equivalence.entity_count)
    _add_run(joint, a, {anchor.a: number for number, anchor in enumerate(anchors)})
    _add_run(joint, b, {anchor.b: number for number, anchor in enumerate(anchors)})
    # Tensors computed from constants may be equal by chance, so they count as weak, like the constants.
    doubtful = {joint.anchor_of[entity] for entity, derived in enumerate(joint.is_derived) if not derived} - {-1}
    for entity, anchor in enumerate(joint.anchor_of):
        if anchor in doubtful:
            joint.anchor_of[entity] = -1
            joint.is_strong[entity] = False
    given = [set[int](), set[int]()]
    for entity, anchor in enumerate(joint.anchor_of):
        if anchor >= 0 and not joint.makers[entity]:
            given[joint.side_of_entity(entity)].add(anchor)
    joint.given_anchors = given[0] & given[1]
    _collect_wholes(joint)
    return joint


def _collect_wholes(joint: JointGraph) -> None:
    for side, first in ((joint.sides[0], 0), (joint.sides[1], joint.first_entity_of_b)):
        for each in side.compositions:
            anchors = [
                joint.anchor_of[int(side.equivalence.entity_of[value]) + first] for value in (each.whole, *each.parts)
            ]
            if min(anchors) >= 0:
                joint.wholes.setdefault(anchors[1], []).append((anchors[0], frozenset(anchors[1:])))


def skip_compositions(joint: JointGraph) -> None:
    """Treat splits and concatenations as data movement where the whole, or all its parts, have anchors.

    The operators that made the whole then make its parts, and those that read the parts read the whole, or vice versa.
    """
    for side, first_op, first in (
        (joint.sides[0], 0, 0),
        (joint.sides[1], joint.first_op_of_b, joint.first_entity_of_b),
    ):
        entity = (side.equivalence.entity_of + first).tolist()
        for each in side.compositions:
            whole, parts = entity[each.whole], [entity[value] for value in each.parts]
            ops = [first_op + op for op in each.ops]
            known = [joint.anchor_of[part] >= 0 for part in parts]
            if joint.anchor_of[whole] < 0 and not all(known):
                continue
            if joint.anchor_of[whole] >= 0 and any(known) and not all(known):
                continue
            _skip(joint, whole, parts, ops, is_split=each.is_split)


def _skip(joint: JointGraph, whole: int, parts: list[int], ops: list[int], *, is_split: bool) -> None:
    before, after = ([whole], parts) if is_split else (parts, [whole])
    for op in ops:
        for each in joint.reads[op]:
            joint.readers[each].remove(op)
        for each in joint.makes[op]:
            joint.makers[each].remove(op)
        joint.reads[op], joint.makes[op], joint.is_movement[op] = [], [], True
        joint.movers[whole if joint.anchor_of[whole] >= 0 else parts[0]].append(op)
    if all(joint.anchor_of[each] >= 0 for each in (*before, *after)):
        for each in before:
            joint.is_kept[each] = True
        return
    if joint.anchor_of[after[0]] >= 0:  # the makers of one side make the other
        for op in dict.fromkeys(op for each in before for op in joint.makers[each]):
            for each in after:
                joint.makes[op].append(each)
                joint.makers[each].append(op)
    else:  # the readers of one side read the other
        for op in dict.fromkeys(op for each in after for op in joint.readers[each]):
            for each in after:
                if each in joint.reads[op]:
                    joint.reads[op].remove(each)
                    joint.readers[each].remove(op)
            for each in before:
                if each not in joint.reads[op]:
                    joint.reads[op].append(each)
                    joint.readers[each].append(op)


def _add_run(joint: JointGraph, side: AnalysedRun, anchors: Mapping[int, int]) -> None:
    graph, equivalence = side.graph, side.equivalence
    first_op, first = len(joint.makes), len(joint.anchor_of)
    joint.entity_sides.extend([int(first_op > 0)] * equivalence.entity_count)
    entity = (equivalence.entity_of + first).tolist()
    class_of, strong, known = equivalence.class_of.tolist(), side.features.strong.tolist(), side.features.known.tolist()
    counts = side.features.counts.tolist()
    for table in (joint.makers, joint.readers, joint.movers, joint.values):
        table.extend([] for _ in range(equivalence.entity_count))
    joint.anchor_of.extend([-1] * equivalence.entity_count)
    joint.is_strong.extend([False] * equivalence.entity_count)
    joint.is_kept.extend([False] * equivalence.entity_count)
    joint.is_derived.extend([False] * equivalence.entity_count)
    joint.is_constant.extend([True] * equivalence.entity_count)
    for value, each in enumerate(entity):
        joint.values[each].append(value)
        joint.anchor_of[each] = anchors.get(class_of[value], -1)
        joint.is_strong[each] |= strong[value]
        joint.is_kept[each] |= graph.is_output[value]
        if not graph.makers[value]:
            is_index = side.graph.run.values[value].dtype.startswith(_INDICES)
            joint.is_derived[each] |= known[value] and not is_index
            joint.is_constant[each] &= is_index or not counts[value]
    for op, moves in enumerate(equivalence.is_movement.tolist()):
        reads = _distinct(graph.reads[op], entity)
        makes = _distinct(graph.makes[op], entity)
        if moves:
            for each in (makes or reads)[:1]:
                joint.movers[each].append(first_op + op)
            reads = makes = []
        joint.is_movement.append(moves)
        joint.reads.append(reads)
        joint.makes.append(makes)
        is_derived, is_constant = (
            any(joint.is_derived[each] for each in reads),
            all(joint.is_constant[each] for each in reads),
        )
        for each in reads:
            joint.readers[each].append(first_op + op)
        for each in makes:
            joint.makers[each].append(first_op + op)
            joint.is_derived[each] |= is_derived
            joint.is_constant[each] &= is_constant


def _distinct(values: Sequence[int], entity: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(entity[value] for value in values))
