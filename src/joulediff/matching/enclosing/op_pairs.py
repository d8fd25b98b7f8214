"""Pairs of corresponding operators of two calls that agree, where their tensors differ in size.

Operators correspond if they have the same name and corresponding inputs: equal tensors, or outputs of corresponding
operators. Views and copies between them do not count. Where the wiring differs, as around a cache, operators between
two pairs are aligned in order: those of the same line and module, or of the same module with one corresponding input.
Operators without a pair that lie between the same two pairs are one group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from joulediff.matching.joint_graph import JointGraph
from joulediff.model.run import Op

Ops = tuple[list[int], list[int]]
"""Operators of a and of b, in the numbers of the joint graph."""

# Sequences without a key that occurs once are compared exactly up to this many pairs of operators.
_FEW_PAIRS = 10_000


def pair_ops(wiring: Wiring, ours: Sequence[int], theirs: Sequence[int]) -> list[Ops]:
    """Return each pair of corresponding operators as a group, and groups of the operators between two pairs."""
    if not ours or not theirs:
        return [(list(ours), list(theirs))] if ours or theirs else []
    pairs = _pair_by_structure(wiring, ours, theirs)
    wiring.add(pairs)
    for key in (wiring.line_key, wiring.module_key, wiring.movement_key):
        for one, other in _align_between(pairs, ours, theirs, key):
            if key == wiring.line_key or wiring.has_common_input(one, other):
                pairs[one] = other
                wiring.add({one: other})
    groups: list[Ops] = [([one], [other]) for one, other in pairs.items()]
    return [*groups, *_split_at(pairs, ours, theirs)]


@dataclass(frozen=True, slots=True)
class _Input:
    """A tensor that an operator reads."""

    anchor: int
    maker: int | None
    """The operator that computed it, whatever views and copies are between."""
    position: int
    """Its place among the outputs of the maker."""


class Wiring:
    """The inputs of operators, and which operators were found to correspond."""

    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        self._pairs: dict[int, int] = {}
        self._entity_of = [each.equivalence.entity_of.tolist() for each in joint.sides]
        self._values = [each.graph.run.values for each in joint.sides]

    def add(self, pairs: Mapping[int, int]) -> None:
        self._pairs |= pairs

    def name(self, op: int) -> tuple[Hashable, ...]:
        found = self._op(op)
        return found.name, found.overload, len(found.inputs), len(found.outputs)

    def inputs(self, op: int) -> Iterator[_Input]:
        """Yield the inputs of an operator, in the order of its arguments."""
        joint, side = self._joint, self._joint.side_of_op(op)
        first_entity, first_op = (joint.first_entity_of_b, joint.first_op_of_b) if side else (0, 0)
        for value in self._op(op).inputs:
            entity = self._entity_of[side][value] + first_entity
            makers, maker = joint.makers[entity], self._values[side][value].producer
            if makers:
                yield _Input(joint.anchor_of[entity], makers[-1], joint.makes[makers[-1]].index(entity))
            elif maker is not None:  # a tensor that was split into the parts of the other run
                yield _Input(joint.anchor_of[entity], first_op + maker, 0)
            else:
                yield _Input(joint.anchor_of[entity], None, 0)

    def line_key(self, op: int) -> Hashable:
        """Return the key of an operator that computes: its name, given inputs, module and line of code."""
        found, key = self._op(op), self.module_key(op)
        if found.frame is None or key is None:
            return None
        frame = self._joint.sides[self._joint.side_of_op(op)].graph.run.frames[found.frame]
        return key, frame.file, frame.line, frame.function

    def module_key(self, op: int) -> Hashable:
        """Return the key of an operator that computes: its name, given inputs and module; None for one that moves."""
        if self._joint.is_movement[op]:
            return None
        given = tuple(each.anchor for each in self.inputs(op) if each.maker is None)
        return self.name(op), self._op(op).module, self._op(op).phase, given

    def movement_key(self, op: int) -> Hashable:
        """Return the key of an operator that moves data: its name and module."""
        return (self.name(op), self._op(op).module) if self._joint.is_movement[op] else None

    def has_common_input(self, one: int, other: int) -> bool:
        """Return whether two operators read equal tensors, or outputs of corresponding operators, as one input."""
        return any(self._is_same(a, b) for a, b in zip(self.inputs(one), self.inputs(other), strict=False))

    def _is_same(self, a: _Input, b: _Input) -> bool:
        if a.anchor >= 0 or b.anchor >= 0:
            return a.anchor == b.anchor
        if a.maker is None or b.maker is None:
            return False
        return self._pairs.get(a.maker) == b.maker and a.position == b.position

    def _op(self, op: int) -> Op:
        side = self._joint.side_of_op(op)
        return self._joint.sides[side].graph.run.ops[self._joint.number_in_run(op)]


def _pair_by_structure(wiring: Wiring, ours: Sequence[int], theirs: Sequence[int]) -> dict[int, int]:
    """Return pairs of operators that compute the same expression of equal tensors.

    If several operators of a side do, the n-th is paired with the n-th, provided that both sides have as many.
    """
    labels: dict[Hashable, int] = {}
    found: defaultdict[int, Ops] = defaultdict(lambda: ([], []))
    grounded: set[int] = set()
    for side, ops in enumerate((ours, theirs)):
        label_of: dict[int, int] = {}
        for op in ops:
            parts, is_grounded = [], False
            for each in wiring.inputs(op):
                if each.anchor >= 0:
                    parts.append((0, each.anchor, 0))
                    is_grounded = True
                elif each.maker in label_of:
                    label = label_of[each.maker]
                    parts.append((1, label, each.position))
                    is_grounded |= label in grounded
                else:
                    parts.append((2, 0, 0))
            label = labels.setdefault((wiring.name(op), tuple(parts)), len(labels))
            label_of[op] = label
            if is_grounded:
                grounded.add(label)
                found[label][side].append(op)
    return {one: other for a, b in found.values() if len(a) == len(b) for one, other in zip(a, b, strict=True)}


def _split_at(pairs: Mapping[int, int], ours: Sequence[int], theirs: Sequence[int]) -> Iterator[Ops]:
    """Yield the operators without a pair that lie between two pairs; pairs in another order separate nothing."""
    ordered = sorted(pairs.items())
    kept = [ordered[at] for at in find_increasing([other for _, other in ordered])]
    taken = set(pairs.values())
    left = [op for op in ours if op not in pairs], [op for op in theirs if op not in taken]
    begins = (0, 0)
    for pair in (*kept, None):
        ends = tuple(len(ops) if pair is None else bisect_left(ops, pair[side]) for side, ops in enumerate(left))
        a, b = (ops[begin:end] for ops, begin, end in zip(left, begins, ends, strict=True))
        if a or b:
            yield a, b
        begins = (ends[0], ends[1])


def _align_between(
    pairs: Mapping[int, int], ours: Sequence[int], theirs: Sequence[int], key: Callable[[int], Hashable]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of operators with equal keys, in order, from between the pairs that were found before."""
    for a, b in list(_split_at(pairs, ours, theirs)):
        for one, other in align([key(op) for op in a], [key(op) for op in b]):
            yield a[one], b[other]


def align(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return places of equal keys in two sequences, increasing in both; a key of None equals nothing.

    Keys that occur once in both come first (patience diff), then those between them. Without any, a short stretch is
    aligned by its longest common subsequence; in a long one, the n-th key is paired with the n-th.
    """
    found: list[tuple[int, int]] = []
    waiting = [(0, len(ours), 0, len(theirs))]
    while waiting:
        first, end, other_first, other_end = waiting.pop()
        while first < end and other_first < other_end and _are_equal(ours[first], theirs[other_first]):
            found.append((first, other_first))
            first, other_first = first + 1, other_first + 1
        while first < end and other_first < other_end and _are_equal(ours[end - 1], theirs[other_end - 1]):
            end, other_end = end - 1, other_end - 1
            found.append((end, other_end))
        if first == end or other_first == other_end:
            continue
        a, b = ours[first:end], theirs[other_first:other_end]
        unique = _pair_unique(a, b)
        if not unique:
            few = len(a) * len(b) <= _FEW_PAIRS
            inside = _find_common(a, b) if few else _pair_unique(_numbered(a), _numbered(b))
            found += [(first + one, other_first + other) for one, other in inside]
            continue
        found += [(first + one, other_first + other) for one, other in unique]
        edges = [(-1, -1), *unique, (len(a), len(b))]
        for (one, other), (next_one, next_other) in pairwise(edges):
            waiting.append((first + one + 1, first + next_one, other_first + other + 1, other_first + next_other))
    return sorted(found)


def _are_equal(one: Hashable, other: Hashable) -> bool:
    return one is not None and one == other


def _numbered(keys: Sequence[Hashable]) -> list[Hashable]:
    """Return each key with the number of times it occurred before."""
    seen: Counter[Hashable] = Counter()
    found: list[Hashable] = []
    for key in keys:
        found.append(None if key is None else (key, seen[key]))
        seen[key] += 1
    return found


def _pair_unique(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return places of keys that occur once in both sequences, increasing in both."""
    counts, other_counts = Counter(ours), Counter(theirs)
    places = {key: at for at, key in enumerate(theirs)}
    found = [
        (at, places[key]) for at, key in enumerate(ours) if key is not None and counts[key] == other_counts[key] == 1
    ]
    return [found[at] for at in find_increasing([other for _, other in found])]


def _find_common(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return places of the longest common subsequence."""
    lengths = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for one in range(len(ours) - 1, -1, -1):
        for other in range(len(theirs) - 1, -1, -1):
            if _are_equal(ours[one], theirs[other]):
                lengths[one][other] = lengths[one + 1][other + 1] + 1
            else:
                lengths[one][other] = max(lengths[one + 1][other], lengths[one][other + 1])
    found, one, other = [], 0, 0
    while one < len(ours) and other < len(theirs):
        if _are_equal(ours[one], theirs[other]):
            found.append((one, other))
            one, other = one + 1, other + 1
        elif lengths[one + 1][other] >= lengths[one][other + 1]:
            one += 1
        else:
            other += 1
    return found


def find_increasing(numbers: Sequence[int]) -> list[int]:
    """Return the places of the longest increasing subsequence of distinct numbers."""
    tails: list[int] = []  # the lowest last number of a subsequence of each length
    places: list[int] = []
    before: list[int] = []
    for at, number in enumerate(numbers):
        length = bisect_left(tails, number)
        before.append(places[length - 1] if length else -1)
        tails[length : length + 1] = [number]
        places[length : length + 1] = [at]
    found, at = [], places[-1] if places else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]
