"""How far the tensors of two runs are apart, and where they begin to differ more than rounding explains.

Rounding errors add up along a program, so equal tensors drift apart slowly. A group of operators whose outputs are much
farther apart than its inputs does not compute the same: another epsilon, another activation, a missing sum. That is a
divergence, however large the tolerance of the matching is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from joulediff.matching.anchor_support import order_distance, signature_of
from joulediff.matching.anchors import Anchor
from joulediff.matching.features import SAME_SKETCH, sketch_distance
from joulediff.matching.joint_graph import JointGraph
from joulediff.model.finding import Divergence, Region
from joulediff.model.run import is_view
from joulediff.model.signature import difference

# The gain of a region is the distance of its outputs over that of its inputs and one rounding error. Up to CLEARLY it
# is never a divergence, beyond EXPLAINED always; in between, if it is UNUSUAL times that of similar regions.
CLEARLY, EXPLAINED = 3.0, 8.0
UNUSUAL = 5.0
# The share of a difference that the tensors after it must have.
LASTING = 1 / 3
# A region with more operators on both sides has no equal tensor inside, though it should.
LARGE = 24
# Distances that come from the order of summation.
_LEAST = 1e-7
# Similar regions that are needed to know the usual distance.
_SIMILAR = 4
# Small tensors, such as the maxima of rows, amplify errors that do not last: outputs must have this share of the usual
# number of elements.
_LARGE = 0.125
# Regions with small outputs that lie between a region and the next large tensor, at most.
_FAR = 4
# Tensors up to this distance are variants of one computation; unrelated ones are farther apart.
_RELATED, _UNRELATED = 0.2, 1.0


@dataclass(frozen=True, slots=True)
class Drift:
    """The distances of the tensors of a region."""

    inputs: float
    outputs: float
    rounding: float
    is_known: bool = True
    """Whether there are inputs and outputs of both sides that can be compared."""
    is_large: bool = True
    """Whether an output is not much smaller than most tensors."""

    @property
    def base(self) -> float:
        """The distance of the inputs and one rounding error."""
        return max(_LEAST, self.inputs + self.rounding)

    @property
    def gain(self) -> float:
        """How many times farther apart the outputs are than the inputs and one rounding error."""
        return self.outputs / self.base


class Distances:
    """The distances of anchors, as a share of the norm of the tensors."""

    def __init__(self, joint: JointGraph, anchors: Sequence[Anchor]) -> None:
        self._joint = joint
        self._by_sketch = {number: each.distance for number, each in enumerate(anchors) if each.has_order}
        self._found: dict[int, float] = {}
        features = joint.sides[0].features
        computed = [value for value, makers in enumerate(joint.sides[0].graph.makers) if makers]
        counts = features.counts[computed][features.strong[computed]]
        self.usual_count = float(np.median(counts)) if len(counts) else 0.0
        """Number of elements of a typical tensor that a computes."""
        self._entities: dict[int, tuple[list[int], list[int]]] = {}
        for entity, anchor in enumerate(joint.anchor_of):
            if anchor >= 0:
                self._entities.setdefault(anchor, ([], []))[joint.entity_sides[entity]].append(entity)

    def of(self, anchor: int) -> float:
        """Return the distance of the two tensors of an anchor."""
        if anchor not in self._found:
            self._found[anchor] = self._find(anchor)
        return self._found[anchor]

    def _find(self, anchor: int) -> float:
        by_sketch = self._by_sketch.get(anchor, 0.0)
        if by_sketch > SAME_SKETCH:
            return by_sketch
        pair = self._first_entities(anchor)
        if pair is None:
            return by_sketch
        by_sketch = order_distance(self._joint, *pair) or 0.0
        if by_sketch > SAME_SKETCH:
            return by_sketch
        apart = difference(*(signature_of(self._joint, each) for each in pair))
        return by_sketch if apart is None else apart

    def _first_entities(self, anchor: int) -> tuple[int, int] | None:
        """Return the first tensors of an anchor in a and b; None if one of them has no value, as a part of a whole."""
        ours, theirs = self._entities[anchor]
        pair = (ours[0], theirs[0]) if ours and theirs else None
        return pair if pair is not None and all(self._joint.values[each] for each in pair) else None

    def of_values(self, one: int, other: int) -> float | None:
        """Return the distance of a value of a and one of b; None if they cannot be compared."""
        joint = self._joint
        anchor = joint.anchor_of[int(joint.sides[0].equivalence.entity_of[one])]
        other_entity = int(joint.sides[1].equivalence.entity_of[other]) + joint.first_entity_of_b
        if anchor >= 0 and joint.anchor_of[other_entity] == anchor:
            return self.of(anchor)
        a, b = joint.sides[0].features, joint.sides[1].features
        return _compare_sketches(joint, one, other) if a.strong[one] and b.strong[other] else None

    def has_order(self, value: int) -> bool:
        """Return whether the distance of a value of a to its counterpart is one of elements, and not of sums alone."""
        joint = self._joint
        anchor = joint.anchor_of[int(joint.sides[0].equivalence.entity_of[value])]
        if anchor < 0 or anchor in self._by_sketch:
            return True
        pair = self._first_entities(anchor)
        return pair is not None and order_distance(joint, *pair) is not None

    def between(self, one: int, other: int) -> float:
        """Return the distance of two entities without an anchor; 1 if they cannot be compared."""
        ours, theirs = self._joint.values[one], self._joint.values[other]
        apart = _compare_sketches(self._joint, ours[0], theirs[0]) if ours and theirs else None
        return _UNRELATED if apart is None else min(apart, _UNRELATED)


def _compare_sketches(joint: JointGraph, one: int, other: int) -> float | None:
    """Return the distance of the sketches of a value of a and one of b; None if they cannot be compared."""
    a, b = joint.sides[0].features, joint.sides[1].features
    if a.sketched[one] != b.sketched[other]:
        return None
    apart = float(sketch_distance(a.sketches[one], b.sketches[other]))
    return apart if math.isfinite(apart) else None


def find_drift(joint: JointGraph, distances: Distances, regions: Sequence[Region]) -> tuple[list[Region], list[Drift]]:
    """Return the regions with their drift and how they were established, and the distances of their tensors."""
    found, drifts = [], []
    for region in regions:
        if region.kind != "equal" or not region.a or not region.b:
            found.append(region)
            drifts.append(Drift(0.0, 0.0, 0.0, is_known=False))
            continue
        drift = _find_drift(joint, distances, region)
        if region.outputs and region.basis != "call":
            is_equal = drift.outputs <= max(_LEAST, drift.rounding)
            found.append(replace(region, basis="equal" if is_equal else "drift", drift=drift.outputs))
        else:
            found.append(region)
        drifts.append(drift)
    return found, drifts


def _find_drift(joint: JointGraph, distances: Distances, region: Region) -> Drift:
    inputs, outputs = list(region.inputs), list(region.outputs)
    is_call = region.basis == "call"
    if is_call and len(region.a) == len(region.b) == 1:
        # The same operator on tensors that differ.
        a, b = (side.graph.run.ops[ops[0]] for side, ops in zip(joint.sides, (region.a, region.b), strict=True))
        inputs, outputs = [*zip(a.inputs, b.inputs, strict=False)], [*zip(a.outputs, b.outputs, strict=False)]
    counts = [_count(joint, pair) for pair in outputs]
    large = _LARGE * distances.usual_count
    is_large = any(count >= large for count in counts)
    apart = [
        distances.of_values(*pair)
        for pair, count in zip(outputs, counts, strict=True)
        if count >= large or not is_large
    ]
    before = [distances.of_values(*pair) for pair in inputs]
    is_weak = any(
        _is_computed(joint, pair)
        and _count(joint, pair) >= large
        and not (joint.sides[0].features.strong[pair[0]] and distances.has_order(pair[0]))
        for pair in inputs
    )
    # The parts of a merged tensor have anchors, but no values and no distance.
    is_weak |= not is_call and any(not joint.values[each] for each in _list_read(joint, region))
    return Drift(
        max((each for each in before if each is not None), default=0.0),
        max((each for each in apart if each is not None), default=0.0),
        max((_rounding(joint, pair) for pair in outputs), default=0.0),
        any(each is not None for each in apart) and not is_weak and not (is_call and None in (*before, *apart)),
        is_large,
    )


def _list_read(joint: JointGraph, region: Region) -> Iterator[int]:
    """Yield the entities that the operators of a region read."""
    for op in (*region.a, *(joint.first_op_of_b + op for op in region.b)):
        yield from joint.reads[op]


def find_divergences(
    joint: JointGraph, distances: Distances, regions: Sequence[Region], drifts: Sequence[Drift], *, agree: bool
) -> list[Divergence]:
    """Return where the runs begin to differ. `agree` says whether their final outputs are equal."""
    found = [*_find_jumps(joint, regions, drifts)]
    if not agree:
        found += _find_first_unequal(joint, distances)
    return sorted(found, key=lambda each: (each.a or (joint.first_op_of_b,), each.b))


def _find_jumps(joint: JointGraph, regions: Sequence[Region], drifts: Sequence[Drift]) -> Iterator[Divergence]:
    """Yield regions whose outputs are farther apart than their inputs and rounding explain, or than is usual.

    The difference must last: one that the next operators remove is an error that cancels out.
    """
    gains: dict[object, list[float]] = {}
    keys = [_names(joint, region) for region in regions]
    for key, drift in zip(keys, drifts, strict=True):
        if drift.is_known:
            gains.setdefault(key, []).append(drift.gain)
    usual = {key: median(each) for key, each in gains.items() if len(each) >= _SIMILAR}
    region_of = {op: number for number, region in enumerate(regions) for op in region.a}
    for region, key, drift in zip(regions, keys, drifts, strict=True):
        limit = min(UNUSUAL * max(usual.get(key, math.inf), 1 / UNUSUAL), EXPLAINED)
        if drift.is_known and drift.gain > max(limit, CLEARLY):
            after = _find_after(joint, region, regions, drifts, region_of)
            share = LASTING * drift.outputs
            least = min(CLEARLY * drift.base, share) if drift.is_large else share
            lasts = [each.outputs > least for each in after]
            if any(lasts) or (drift.is_large and not lasts):
                yield Divergence(region.a, region.b, drift.outputs, limit * drift.base)
                continue
        if region.kind == "equal" and region.basis != "call" and region.a and region.b:
            inside = _find_inside(joint, region, drift)
            if inside is not None:
                yield inside


def _find_inside(joint: JointGraph, region: Region, drift: Drift) -> Divergence | None:
    """Return where the runs differ inside a region.

    Two operators compute related tensors from the same ones, as two activations do; or none of many tensors is equal.
    """
    sides = region.a, tuple(joint.first_op_of_b + op for op in region.b)
    ops = [[op for op in side if not joint.is_movement[op]] for side in sides]
    for one in ops[0]:
        for other in ops[1]:
            apart = _distance_of_outputs(joint, one, other)
            if apart is not None and SAME_SKETCH + CLEARLY * drift.base < apart < _RELATED:
                a, b = joint.number_in_run(one), joint.number_in_run(other)
                return Divergence((a,), (b,), apart, CLEARLY * drift.base)
    if min(map(len, ops)) > LARGE:
        return Divergence(region.a[:1], region.b[:1], _UNRELATED, 0.0)
    return None


def _distance_of_outputs(joint: JointGraph, one: int, other: int) -> float | None:
    """Return the distance of what two operators compute from the same tensors; None if they read others."""
    read = [{joint.anchor_of[entity] for entity in joint.reads[op]} for op in (one, other)]
    if read[0] != read[1] or not read[0] or -1 in read[0]:
        return None
    values = []
    for op, side in zip((one, other), joint.sides, strict=True):
        open_ones = [entity for entity in joint.makes[op] if joint.anchor_of[entity] < 0]
        found = [joint.values[entity][0] for entity in open_ones if joint.values[entity]]
        values += [value for value in found[:1] if side.features.strong[value]]
    if len(values) < len(joint.sides):
        return None
    return _compare_sketches(joint, values[0], values[1])


def _find_after(
    joint: JointGraph,
    region: Region,
    regions: Sequence[Region],
    drifts: Sequence[Drift],
    region_of: Mapping[int, int],
) -> list[Drift]:
    """Return the distances of the next large tensors that are computed from those of a region."""
    found, seen, waiting = [], set[int](), [region]
    for _ in range(_FAR):
        readers = {each for mine in waiting for each in _find_readers(joint, mine, region_of)} - seen
        seen |= readers
        found += [drifts[each] for each in readers if drifts[each].is_known and drifts[each].is_large]
        waiting = [regions[each] for each in sorted(readers) if not drifts[each].is_large]
    return found


def _find_readers(joint: JointGraph, region: Region, region_of: Mapping[int, int]) -> set[int]:
    """Return the regions that read what a region computes in a."""
    own = set(region.a)
    read = {op for mine in region.a for made in joint.makes[mine] for op in joint.readers[made]}
    return {region_of[op] for op in read - own if op in region_of}


def _find_first_unequal(joint: JointGraph, distances: Distances) -> Iterator[Divergence]:
    """Yield the first operators of both runs after which no tensor is equal, though all their inputs are."""
    leads = [anchor >= 0 for anchor in joint.anchor_of]
    for op in range(len(joint.makes) - 1, -1, -1):
        if any(leads[entity] for entity in joint.makes[op]):
            for entity in joint.reads[op]:
                leads[entity] = True
    reaches = _find_used(joint)
    firsts = []
    for ops in (range(joint.first_op_of_b), range(joint.first_op_of_b, len(joint.makes))):
        run, first = joint.sides[joint.side_of_op(ops[0])].graph.run, ops[0]
        is_lost = (op for op in ops if reaches[op] and not any(leads[entity] for entity in joint.makes[op]))
        is_lost = (op for op in is_lost if not is_view(run, op - first))
        firsts.append(next((op for op in is_lost if _is_derived(joint, op)), None))
    if firsts[0] is None and firsts[1] is None:
        return
    a, b = (() if op is None else (joint.number_in_run(op),) for op in firsts)
    apart = _UNRELATED
    if firsts[0] is not None and firsts[1] is not None:
        apart = distances.between(joint.makes[firsts[0]][0], joint.makes[firsts[1]][0])
    yield Divergence(a, b, apart, 0.0)


def _find_used(joint: JointGraph) -> list[bool]:
    """Return which operators compute something that reaches an output of the step."""
    used = [False] * len(joint.makes)
    for op in range(len(used) - 1, -1, -1):
        used[op] = any(
            joint.is_kept[entity] or any(used[reader] for reader in joint.readers[entity]) for entity in joint.makes[op]
        )
    return used


def _is_derived(joint: JointGraph, op: int) -> bool:
    return any(joint.is_derived[entity] for entity in joint.makes[op])


def _names(joint: JointGraph, region: Region) -> object:
    sides = zip(joint.sides, (region.a, region.b), strict=True)
    return tuple(tuple(side.graph.run.ops[op].name for op in ops) for side, ops in sides)


def _count(joint: JointGraph, pair: tuple[int, int]) -> float:
    return max(float(side.features.counts[value]) for side, value in zip(joint.sides, pair, strict=True))


def _is_computed(joint: JointGraph, pair: tuple[int, int]) -> bool:
    return bool(joint.sides[0].graph.makers[pair[0]])


def _rounding(joint: JointGraph, pair: tuple[int, int]) -> float:
    return max(float(side.features.rounding[value]) for side, value in zip(joint.sides, pair, strict=True))
