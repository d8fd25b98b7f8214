"""Operators without a counterpart, put into the smallest pair of calls whose outputs agree.

The outputs of a call are the tensors that it makes and that are read after it. Two calls, one of each run, agree if
they share an output and each one makes the outputs of the other, also those that only one of them hands on, as to a
cache. All tensors computed elsewhere that they read must have anchors. The whole step is the largest call; it agrees if
the steps return equal tensors. Operators of calls that agree with none stay without a counterpart: no operators are
paired by names or order alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from joulediff.matching.anchor_support import signature_of
from joulediff.matching.disjoint_sets import DisjointSets
from joulediff.matching.enclosing.calls import Span, find_calls
from joulediff.matching.enclosing.op_pairs import Ops, Wiring, pair_ops
from joulediff.matching.features import is_same_weak_value
from joulediff.matching.joint_graph import JointGraph

# A call is compared with others by this many of its outputs, the latest first.
_OUTPUTS = 4
# Fewer whole numbers may be equal by chance.
_FEW = 4


def enclose(joint: JointGraph, wiring: Wiring, left: Iterable[int]) -> list[Ops]:
    """Return groups of operators, of those in `left`, that belong to calls of both runs whose outputs agree.

    Operators of both sides that correspond are a group of their own. Operators in no such calls are left out.
    """
    ordered = sorted(left)
    if not ordered:
        return []
    calls = _Calls(joint)
    call_of = {op: calls.find_call(op) for op in ordered}
    members: defaultdict[int, Ops] = defaultdict(lambda: ([], []))
    for op, call in call_of.items():
        if call is not None:
            members[calls.agreeing.find(call)][joint.side_of_op(op)].append(op)
    return [each for ours, theirs in members.values() for each in pair_ops(wiring, ours, theirs)]


class _Calls:
    """The calls of both runs with their outputs. Operators have the numbers of the joint graph."""

    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        self._spans: list[Span] = []
        self._parents: list[int] = []
        # By operator: the smallest function or iteration, and the smallest module, that hold it.
        self._innermost: tuple[list[int], list[int]] = ([], [])
        self._roots: list[int] = []
        for side, first_op in ((0, 0), (1, joint.first_op_of_b)):
            for tree, innermost in zip(find_calls(joint.sides[side].graph.run), self._innermost, strict=True):
                first = len(self._spans)
                self._roots.append(first)
                self._spans += [(begin + first_op, end + first_op) for begin, end in tree.spans]
                self._parents += [first + parent if parent >= 0 else -1 for parent in tree.parents]
                innermost += [first + call for call in tree.innermost]
        # The anchors of the outputs of each call; None if it makes or reads a tensor without an anchor.
        self._outputs: list[set[int] | None] = [set() for _ in self._spans]
        # By side and anchor: the operators that make it, in order, and the calls that it is an output of.
        self._made_by: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._left_by: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._given: set[tuple[int, int]] = set()
        # Anchors of tensors that equal others by chance.
        self._plain: set[int] = set()
        for entity in range(len(joint.makers)):
            self._add_entity(entity)
        for makers in self._made_by.values():
            makers.sort()
        self.agreeing = DisjointSets(len(self._spans))
        self._partners: dict[int, int | None] = dict.fromkeys(self._roots)
        self._found: dict[tuple[int, int], int | None] = {}
        if do_steps_agree(joint):
            for root in self._roots:
                self._partners[root] = self._roots[0]
                self.agreeing.merge(self._roots[0], root)

    def find_call(self, op: int) -> int | None:
        """Return the smallest call around an operator that agrees with calls of the other run, merged with these."""
        key = (self._innermost[0][op], self._innermost[1][op])
        if key not in self._found:
            around = sorted((call for tree in (0, 1) for call in self._calls_around(tree, op)), key=self._size)
            self._found[key] = next((call for call in around if self._find_partner(call) is not None), None)
            self._merge_partners(self._found[key])
        return self._found[key]

    def _merge_partners(self, call: int | None) -> None:
        """Merge a call with its partner, which may have a smaller partner of its own, and so on."""
        while call is not None:
            partner = self._find_partner(call)
            if partner is None or not self.agreeing.merge(call, partner):
                return
            call = partner

    def _find_partner(self, call: int) -> int | None:
        """Return the smallest call of the other run that agrees with a call; the first of several."""
        if call not in self._partners:
            found = sorted(set(self._list_partners(call)))
            self._partners[call] = min(found, key=self._size, default=None)
        return self._partners[call]

    def _list_partners(self, call: int) -> Iterator[int]:
        side, outputs = self._side(call), (self._outputs[call] or set()) - self._plain
        latest = sorted(outputs, key=lambda anchor: self._made_by[side, anchor][-1], reverse=True)
        for anchor in latest[:_OUTPUTS]:
            for other in self._left_by.get((1 - side, anchor), ()):
                if other not in self._roots and self._agree(call, other):
                    yield other

    def _agree(self, one: int, other: int) -> bool:
        """Return whether two calls that share an output agree in the others."""
        ours, theirs = self._outputs[one], self._outputs[other]
        if ours is None or theirs is None:
            return False
        if self._makes(other, ours - theirs) and self._makes(one, theirs - ours):
            return True
        ours, theirs = self._joint.merge_parts(ours), self._joint.merge_parts(theirs)
        return self._makes(other, ours - theirs) and self._makes(one, theirs - ours)

    def _makes(self, call: int, anchors: Iterable[int]) -> bool:
        """Return whether a call makes tensors, or its run was given them."""
        side, (first, end) = self._side(call), self._spans[call]
        for anchor in anchors:
            makers = self._made_by.get((side, anchor), ())
            at = bisect_left(makers, first)
            is_made = at < len(makers) and makers[at] < end
            if not is_made and (side, anchor) not in self._given:
                return False
        return True

    def _add_entity(self, entity: int) -> None:
        """Add a tensor to the outputs of all calls that make it and do not hold all its readers."""
        joint, makers, readers = self._joint, self._joint.makers[entity], self._joint.readers[entity]
        key = (joint.side_of_entity(entity), joint.anchor_of[entity])
        has_anchor = joint.anchor_of[entity] >= 0
        if not makers:
            self._given.add(key)
        elif has_anchor:
            self._made_by[key].extend(makers)
            if not joint.is_strong[entity] and not _is_telling(joint, entity):
                self._plain.add(joint.anchor_of[entity])
            for call in self._calls_without(makers, readers, is_kept=joint.is_kept[entity]):
                outputs = self._outputs[call]
                if outputs is not None and joint.anchor_of[entity] not in outputs:
                    outputs.add(joint.anchor_of[entity])
                    self._left_by[key].append(call)
        elif not joint.is_constant[entity]:
            for call in self._calls_without(makers, readers, is_kept=joint.is_kept[entity]):
                self._outputs[call] = None
            for call in self._calls_without(readers, makers):
                self._outputs[call] = None

    def _calls_without(self, ops: Sequence[int], others: Sequence[int], *, is_kept: bool = False) -> Iterator[int]:
        """Yield the calls that hold one of some operators, and not all of the others; every call if it `is_kept`."""
        if not others and not is_kept:
            return
        first, last = (-1, -1) if is_kept else (min(others), max(others))
        for op in dict.fromkeys(ops):
            for tree in (0, 1):
                for call in self._calls_around(tree, op):
                    begin, end = self._spans[call]
                    if begin <= first and last < end:
                        break
                    yield call

    def _calls_around(self, tree: int, op: int) -> Iterator[int]:
        """Yield the calls of one tree that hold an operator, the smallest first."""
        call = self._innermost[tree][op]
        while call >= 0:
            yield call
            call = self._parents[call]

    def _side(self, call: int) -> int:
        return self._joint.side_of_op(self._spans[call][0])

    def _size(self, call: int) -> int:
        first, end = self._spans[call]
        return end - first


def do_steps_agree(joint: JointGraph) -> bool:
    """Return whether two steps return equal tensors, apart from constants, and at least one."""
    ours, theirs = (_list_returned(joint, side) for side in (0, 1))
    anchors = [{joint.anchor_of[each] for each in returned} - {-1} for returned in (ours, theirs)]
    wholes = [joint.merge_parts(each) for each in anchors]
    loose = [[each for each in returned if joint.anchor_of[each] < 0] for returned in (ours, theirs)]
    if wholes[0] != wholes[1] or len(loose[0]) != len(loose[1]):
        return False
    for one in loose[0]:
        other = next((each for each in loose[1] if _are_equal_numbers(joint, one, each)), None)
        if other is None:
            return False
        loose[1].remove(other)
    return any(_is_telling(joint, each) for each in ours)


def do_tensors_agree(joint: JointGraph) -> bool:
    """Return whether one of the equal tensors that agreeing steps return has more than a few different numbers.

    A single number, such as a loss, may be equal for different inputs.
    """
    returned = (each for each in _list_returned(joint, 0) if joint.anchor_of[each] >= 0)
    return any(_is_telling(joint, each) and _count_of(joint, each) > _FEW for each in returned)


def _count_of(joint: JointGraph, entity: int) -> int:
    found = signature_of(joint, entity)
    return 0 if found is None else found.count


def _list_returned(joint: JointGraph, side: int) -> list[int]:
    """Return the entities of a run that its step computed and returned, or left in a parameter; without constants."""
    is_output = joint.sides[side].graph.is_output
    return [
        entity
        for entity, makers in enumerate(joint.makers)
        if makers
        and joint.side_of_entity(entity) == side
        and not joint.is_constant[entity]
        # The parts of a merged tensor have no values.
        and (any(is_output[value] for value in joint.values[entity]) if joint.values[entity] else joint.is_kept[entity])
    ]


def _are_equal_numbers(joint: JointGraph, one: int, other: int) -> bool:
    """Return whether two returned tensors are the same whole numbers, such as generated tokens.

    Such values have no anchors, because other tensors may hold the same numbers. The results of two steps with equal
    inputs are no such coincidence, if they are more than a few.
    """
    a, b = signature_of(joint, one), signature_of(joint, other)
    if a is None or b is None or not (a.integral and b.integral and a.finite and b.finite):
        return False
    if a.count <= _FEW or (a.sketch is not None and b.sketch is not None and a.sketch != b.sketch):
        return False
    return is_same_weak_value(a, b, tolerance=0.0)


def _is_telling(joint: JointGraph, entity: int) -> bool:
    """Return whether a tensor is one number, or holds different finite numbers: others equal by chance."""
    found = signature_of(joint, entity)
    return found is not None and found.finite and (not found.constant or (found.count == 1 and not found.zeros))
