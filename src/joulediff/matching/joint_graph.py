"""Two runs side by side, with one number for every operator and entity of both, and the anchors between them.

Operators and entities of b follow those of a. An entity is a tensor in all its views, copies and casts; the anchor of
an entity is the number of the pair its class is in, or -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.matching.anchors import Anchor, Side

# Types of what counts or chooses.
_INDICES = ("int", "uint", "bool")


@dataclass(slots=True)
class Joint:
    """Both runs. Movement is no operator here: it leads from an entity to itself."""

    sides: tuple[Side, Side]
    ops: int
    """Operators of a: where those of b begin."""
    entities: int
    makes: list[list[int]] = field(default_factory=list)
    """By operator: entities."""
    reads: list[list[int]] = field(default_factory=list)
    makers: list[list[int]] = field(default_factory=list)
    """By entity: operators that compute it; none for what was there before the step."""
    readers: list[list[int]] = field(default_factory=list)
    moves: list[bool] = field(default_factory=list)
    """By operator: whether it only moves data."""
    movers: list[list[int]] = field(default_factory=list)
    """By entity: operators that move it."""
    anchor: list[int] = field(default_factory=list)
    is_strong: list[bool] = field(default_factory=list)
    is_kept: list[bool] = field(default_factory=list)
    """By entity: whether it outlives the step, or is taken apart or put together with others for what reads it then."""
    is_derived: list[bool] = field(default_factory=list)
    """By entity: whether any tensor that the step was given went into it, but for constants and indices."""
    is_free: list[bool] = field(default_factory=list)
    """By entity: whether nothing but indices that the step was given went into it: a constant, a mask, a position."""
    values: list[list[int]] = field(default_factory=list)
    """By entity: its values."""
    given: set[int] = field(default_factory=set)
    """Anchors of what was there before the step, in both runs."""
    wholes: dict[int, list[tuple[int, frozenset[int]]]] = field(default_factory=dict)
    """By the anchor of a first part: wholes and all their parts, by anchor."""

    def put_together(self, anchors: Iterable[int]) -> set[int]:
        """Return anchors with wholes in the place of all their parts."""
        found = set(anchors)
        for first in sorted(found):
            for whole, parts in self.wholes.get(first, ()):
                if parts <= found:
                    found = found - parts | {whole}
        return found

    def side_of(self, op: int) -> int:
        """Return 0 for an operator of a, 1 for one of b."""
        return int(op >= self.ops)

    def own(self, op: int) -> int:
        """Return the number of an operator in its own run."""
        return op - self.ops if op >= self.ops else op

    def share(self, op: int) -> float:
        """Return how much of its run lies before an operator."""
        return self.own(op) / len(self.sides[self.side_of(op)].graph.run.ops)


def to_joint(a: Side, b: Side, anchors: Sequence[Anchor]) -> Joint:
    """Return two runs side by side, with anchors numbered as they are given."""
    joint = Joint((a, b), len(a.graph.run.ops), a.classes.entities)
    _add(joint, a, {anchor.a: number for number, anchor in enumerate(anchors)})
    _add(joint, b, {anchor.b: number for number, anchor in enumerate(anchors)})
    # What is computed from constants may be equal by chance wherever it is: it is as weak as they are.
    doubtful = {joint.anchor[entity] for entity, derived in enumerate(joint.is_derived) if not derived}
    for entity, anchor in enumerate(joint.anchor):
        if anchor in doubtful:
            joint.anchor[entity] = -1
            joint.is_strong[entity] = False
    given = [set[int](), set[int]()]
    for entity, anchor in enumerate(joint.anchor):
        if anchor >= 0 and not joint.makers[entity]:
            given[int(entity >= joint.entities)].add(anchor)
    joint.given = given[0] & given[1]
    _note_wholes(joint)
    return joint


def _note_wholes(joint: Joint) -> None:
    for side, first in ((joint.sides[0], 0), (joint.sides[1], joint.entities)):
        for each in side.parts:
            anchors = [joint.anchor[int(side.classes.entity[value]) + first] for value in (each.whole, *each.parts)]
            if min(anchors) >= 0:
                joint.wholes.setdefault(anchors[1], []).append((anchors[0], frozenset(anchors[1:])))


def look_through_parts(joint: Joint) -> None:
    """Make movement of the operators that take tensors apart or put them together where that leaves anchors.

    What made the whole then makes its parts, what reads them reads the whole, or the other way round.
    """
    for side, first_op, first in ((joint.sides[0], 0, 0), (joint.sides[1], joint.ops, joint.entities)):
        entity = (side.classes.entity + first).tolist()
        for each in side.parts:
            whole, parts = entity[each.whole], [entity[value] for value in each.parts]
            ops = [first_op + op for op in each.ops]
            known = [joint.anchor[part] >= 0 for part in parts]
            if joint.anchor[whole] < 0 and not all(known):
                continue
            if joint.anchor[whole] >= 0 and any(known) and not all(known):
                continue
            _look_through(joint, whole, parts, ops, is_split=each.is_split)


def _look_through(joint: Joint, whole: int, parts: list[int], ops: list[int], *, is_split: bool) -> None:
    before, after = ([whole], parts) if is_split else (parts, [whole])
    for op in ops:
        for each in joint.reads[op]:
            joint.readers[each].remove(op)
        for each in joint.makes[op]:
            joint.makers[each].remove(op)
        joint.reads[op], joint.makes[op], joint.moves[op] = [], [], True
        joint.movers[whole if joint.anchor[whole] >= 0 else parts[0]].append(op)
    if all(joint.anchor[each] >= 0 for each in (*before, *after)):
        for each in before:
            joint.is_kept[each] = True
        return
    if joint.anchor[after[0]] >= 0:  # what made the one makes the other
        for op in dict.fromkeys(op for each in before for op in joint.makers[each]):
            for each in after:
                joint.makes[op].append(each)
                joint.makers[each].append(op)
    else:  # what reads the one reads the other
        for op in dict.fromkeys(op for each in after for op in joint.readers[each]):
            for each in after:
                if each in joint.reads[op]:
                    joint.reads[op].remove(each)
                    joint.readers[each].remove(op)
            for each in before:
                if each not in joint.reads[op]:
                    joint.reads[op].append(each)
                    joint.readers[each].append(op)


def _add(joint: Joint, side: Side, anchors: Mapping[int, int]) -> None:
    graph, classes = side.graph, side.classes
    first_op, first = len(joint.makes), len(joint.anchor)
    entity = (classes.entity + first).tolist()
    of, strong, known = classes.of.tolist(), side.features.strong.tolist(), side.features.known.tolist()
    counts = side.features.counts.tolist()
    for table in (joint.makers, joint.readers, joint.movers, joint.values):
        table.extend([] for _ in range(classes.entities))
    joint.anchor.extend([-1] * classes.entities)
    joint.is_strong.extend([False] * classes.entities)
    joint.is_kept.extend([False] * classes.entities)
    joint.is_derived.extend([False] * classes.entities)
    joint.is_free.extend([True] * classes.entities)
    for value, each in enumerate(entity):
        joint.values[each].append(value)
        joint.anchor[each] = anchors.get(of[value], -1)
        joint.is_strong[each] |= strong[value]
        joint.is_kept[each] |= graph.is_output[value]
        if not graph.makers[value]:
            is_index = side.graph.run.values[value].dtype.startswith(_INDICES)
            joint.is_derived[each] |= known[value] and not is_index
            joint.is_free[each] &= is_index or not counts[value]
    for op, moves in enumerate(classes.moves.tolist()):
        reads = _distinct(graph.reads[op], entity)
        makes = _distinct(graph.makes[op], entity)
        if moves:
            for each in (makes or reads)[:1]:
                joint.movers[each].append(first_op + op)
            reads = makes = []
        joint.moves.append(moves)
        joint.reads.append(reads)
        joint.makes.append(makes)
        derived, free = any(joint.is_derived[each] for each in reads), all(joint.is_free[each] for each in reads)
        for each in reads:
            joint.readers[each].append(first_op + op)
        for each in makes:
            joint.makers[each].append(first_op + op)
            joint.is_derived[each] |= derived
            joint.is_free[each] &= free


def _distinct(values: Sequence[int], entity: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(entity[value] for value in values))
