"""How far the tensors of two runs are apart, and where they begin to differ more than rounding explains.

Rounding errors add up along a program, so equal tensors drift apart slowly. A group of operators whose outputs are much
farther apart than its inputs does not compute the same: another epsilon, another activation, a missing sum. That is a
divergence, however large the tolerance of the matching is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from joulediff.matching.anchor_support import signature_of
from joulediff.matching.anchors import Anchor
from joulediff.matching.features import SAME_SKETCH, sketch_distance
from joulediff.matching.joint_graph import JointGraph
from joulediff.model.finding import Divergence, Region
from joulediff.model.signature import difference

# The distance of outputs that the distance of the inputs and the rounding of the outputs' float type explain: the first
# times AMPLIFIED, the second times ROUNDED. Among similar regions, the usual distance times UNUSUAL is the limit.
AMPLIFIED = 4.0
ROUNDED = 8.0
UNUSUAL = 4.0
# Distances that come from the order of summation.
_LEAST = 1e-7
# Similar regions that are needed to know the usual distance.
_SIMILAR = 4
_UNRELATED = 1.0


@dataclass(frozen=True, slots=True)
class Drift:
    """The distances of the tensors of a region."""

    inputs: float
    outputs: float
    rounding: float

    @property
    def expected(self) -> float:
        """The distance of the outputs that rounding explains."""
        return max(_LEAST, AMPLIFIED * self.inputs + ROUNDED * self.rounding)


class Distances:
    """The distances of anchors, as a share of the norm of the tensors."""

    def __init__(self, joint: JointGraph, anchors: Sequence[Anchor]) -> None:
        self._joint = joint
        self._by_sketch = {number: each.distance for number, each in enumerate(anchors) if each.has_order}
        self._found: dict[int, float] = {}
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
        ours, theirs = self._entities[anchor]
        if by_sketch > SAME_SKETCH or not ours or not theirs:
            return by_sketch
        apart = difference(signature_of(self._joint, ours[0]), signature_of(self._joint, theirs[0]))
        return by_sketch if apart is None else apart

    def between(self, one: int, other: int) -> float:
        """Return the distance of two entities without an anchor; 1 if they cannot be compared."""
        joint = self._joint
        values = joint.values[one][:1], joint.values[other][:1]
        if not all(values):
            return _UNRELATED
        rows = [joint.sides[side].features.sketches[value[0]] for side, value in enumerate(values)]
        counts = [joint.sides[side].features.sketched[value[0]] for side, value in enumerate(values)]
        apart = float(sketch_distance(rows[0], rows[1])) if counts[0] == counts[1] else _UNRELATED
        return min(apart, _UNRELATED) if apart == apart else _UNRELATED


def find_drift(joint: JointGraph, distances: Distances, regions: Sequence[Region]) -> tuple[list[Region], list[Drift]]:
    """Return the regions with their drift and how they were established, and the distances of their tensors."""
    found, drifts = [], []
    for region in regions:
        drift = Drift(
            max((distances.of(each) for each in _anchors(joint, region.inputs)), default=0.0),
            max((distances.of(each) for each in _anchors(joint, region.outputs)), default=0.0),
            max((_rounding(joint, pair) for pair in region.outputs), default=0.0),
        )
        if region.kind == "equal" and region.outputs and region.basis != "call":
            is_equal = drift.outputs <= max(_LEAST, drift.rounding)
            region = replace(region, basis="equal" if is_equal else "drift", drift=drift.outputs)
        found.append(region)
        drifts.append(drift)
    return found, drifts


def find_divergences(
    joint: JointGraph, distances: Distances, regions: Sequence[Region], drifts: Sequence[Drift], *, agree: bool
) -> list[Divergence]:
    """Return where the runs begin to differ. `agree` says whether their final outputs are equal."""
    found = [*_find_jumps(joint, regions, drifts)]
    if not agree:
        found += _find_first_unequal(joint, distances)
    return sorted(found, key=lambda each: (each.a or (joint.first_op_of_b,), each.b))


def _find_jumps(joint: JointGraph, regions: Sequence[Region], drifts: Sequence[Drift]) -> Iterator[Divergence]:
    """Yield regions whose outputs are farther apart than their inputs and rounding explain, or than is usual."""
    usual: dict[object, list[float]] = {}
    keys = [_names(joint, region) for region in regions]
    for key, drift in zip(keys, drifts, strict=True):
        usual.setdefault(key, []).append(drift.outputs)
    limits = {
        key: UNUSUAL * max(_LEAST, median(similar)) if len(similar) >= _SIMILAR else math.inf
        for key, similar in usual.items()
    }
    for region, key, drift in zip(regions, keys, drifts, strict=True):
        if region.drift is None:
            continue
        is_unusual = drift.outputs > limits[key] and drift.outputs > 2 * (drift.inputs + drift.rounding)
        if is_unusual or drift.outputs > drift.expected:
            yield Divergence(region.a, region.b, drift.outputs, drift.expected)


def _find_first_unequal(joint: JointGraph, distances: Distances) -> Iterator[Divergence]:
    """Yield the first operators of both runs after which no tensor is equal, though all their inputs are."""
    leads = [anchor >= 0 for anchor in joint.anchor_of]
    for op in range(len(joint.makes) - 1, -1, -1):
        if any(leads[entity] for entity in joint.makes[op]):
            for entity in joint.reads[op]:
                leads[entity] = True
    firsts = []
    for ops in (range(joint.first_op_of_b), range(joint.first_op_of_b, len(joint.makes))):
        is_lost = (op for op in ops if joint.makes[op] and not any(leads[entity] for entity in joint.makes[op]))
        firsts.append(next((op for op in is_lost if _is_used(joint, op) and _is_derived(joint, op)), None))
    if firsts[0] is None and firsts[1] is None:
        return
    a, b = (() if op is None else (joint.number_in_run(op),) for op in firsts)
    apart = _UNRELATED
    if firsts[0] is not None and firsts[1] is not None:
        apart = distances.between(joint.makes[firsts[0]][0], joint.makes[firsts[1]][0])
    yield Divergence(a, b, apart, 0.0)


def _is_used(joint: JointGraph, op: int) -> bool:
    return any(joint.is_kept[entity] or joint.readers[entity] for entity in joint.makes[op])


def _is_derived(joint: JointGraph, op: int) -> bool:
    return any(joint.is_derived[entity] for entity in joint.makes[op])


def _names(joint: JointGraph, region: Region) -> object:
    sides = zip(joint.sides, (region.a, region.b), strict=True)
    return tuple(tuple(side.graph.run.ops[op].name for op in ops) for side, ops in sides)


def _anchors(joint: JointGraph, pairs: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the anchors of pairs of values."""
    for one, _ in pairs:
        anchor = joint.anchor_of[int(joint.sides[0].equivalence.entity_of[one])]
        if anchor >= 0:
            yield anchor


def _rounding(joint: JointGraph, pair: tuple[int, int]) -> float:
    return max(float(side.features.rounding[value]) for side, value in zip(joint.sides, pair, strict=True))
