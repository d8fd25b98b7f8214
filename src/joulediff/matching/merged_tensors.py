"""Tensors that one run holds as a whole and the other one in parts, with no operator that splits or joins them.

A merged product (`gate_up`) equals the products of the other run one after the other: counts and power sums add up. For
weights the sums are exact. For computed tensors rounding blurs the sums, so their origin must agree too: the whole is
computed from the tensors that its parts are computed from, and from no others. A whole found in this way is replaced by
its parts (`JointGraph.split`), so that everything after it sees equal tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from joulediff.matching.anchors import DEPTH
from joulediff.matching.joint_graph import JointGraph

# Most parts of one tensor, and most rounds: parts of parts are found in the next one.
_PARTS = 64
_ROUNDS = 8
# Most tensors without an anchor that are computed from the same tensors.
_MOST = 256
# Sums of weights that were read from the same file, over another order of elements.
EXACT = 1e-7


def split_merged_products(joint: JointGraph, tolerance: float) -> None:
    """Replace tensors that are computed from merged weights by the parts that the other run has."""
    for _ in range(_ROUNDS):
        if not _split_computed(joint, tolerance):
            return


def split_merged_weights(joint: JointGraph) -> None:
    """Replace merged weights by the parts that the other run has."""
    given = [
        [each for each in _list_open(joint, side) if not joint.makers[each] and joint.readers[each]] for side in (0, 1)
    ]
    for side in given:
        side.sort(key=lambda entity: joint.readers[entity][0])
    for wholes, parts in (given, given[::-1]):
        taken = set[int]()
        for whole in wholes:
            left = [each for each in parts if each not in taken and joint.anchor_of[each] < 0]
            found = next((each for each in _find_runs(joint, whole, left) if _add_up(joint, whole, each, EXACT)), None)
            if found is not None:
                taken.update(found)
                joint.split(whole, found)


def _split_computed(joint: JointGraph, tolerance: float) -> bool:
    """Split wholes whose parts are all computed from the same tensors; return whether any was split."""
    by_key: tuple[defaultdict[frozenset[int], list[int]], ...] = (defaultdict(list), defaultdict(list))
    origins: dict[int, frozenset[int]] = {}
    for side in (0, 1):
        for entity in _list_open(joint, side):
            origin = _find_direct_origin(joint, entity)
            if origin:
                origins[entity] = origin
                # Weights differ from part to part.
                by_key[side][origin - joint.given_anchors].append(entity)
    changed = False
    for mine, theirs in (by_key, by_key[::-1]):
        for key, wholes in mine.items():
            if 1 < len(theirs.get(key, ())) <= _MOST:
                for whole in wholes:
                    changed |= _split_one(joint, whole, theirs[key], origins, tolerance)
    return changed


def _split_one(
    joint: JointGraph, whole: int, parts: Sequence[int], origins: Mapping[int, frozenset[int]], tolerance: float
) -> bool:
    left = [each for each in parts if joint.anchor_of[each] < 0]
    if not joint.makers[whole] or any(_count(joint, each) == _count(joint, whole) for each in left):
        return False  # it was split before, or the other run has the whole too, though with other values
    for found in _find_runs(joint, whole, left):
        known = frozenset[int]().union(*(origins[part] for part in found))
        if known == origins[whole] and _add_up(joint, whole, found, tolerance):
            joint.split(whole, found)
            return True
    return False


def _find_direct_origin(joint: JointGraph, entity: int) -> frozenset[int]:
    """Return the anchors that the maker of an entity reads; none if it also reads tensors without an anchor."""
    anchors = {joint.anchor_of[each] for op in joint.makers[entity] for each in joint.reads[op]}
    return frozenset() if -1 in anchors else frozenset(anchors)


def _list_open(joint: JointGraph, side: int) -> Iterator[int]:
    """Yield the strong entities of one side without an anchor."""
    for entity, anchor in enumerate(joint.anchor_of):
        if anchor < 0 and joint.is_strong[entity] and joint.entity_sides[entity] == side and joint.values[entity]:
            yield entity


def _find_runs(joint: JointGraph, whole: int, parts: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield consecutive parts whose counts add up to that of the whole."""
    count, counts = _count(joint, whole), [_count(joint, each) for each in parts]
    for begin in range(len(parts)):
        size = 0.0
        for end in range(begin, min(len(parts), begin + _PARTS)):
            size += counts[end]
            if size >= count:
                if size == count and end > begin:
                    yield parts[begin : end + 1]
                break


def _count(joint: JointGraph, entity: int) -> float:
    return float(joint.sides[joint.entity_sides[entity]].features.counts[joint.values[entity][0]])


def _add_up(joint: JointGraph, whole: int, parts: Sequence[int], tolerance: float) -> bool:
    side, other = joint.sides[joint.entity_sides[whole]], joint.sides[1 - joint.entity_sides[whole]]
    value, values = joint.values[whole][0], [joint.values[each][0] for each in parts]
    rounding = DEPTH * float(side.features.rounding[value]) if tolerance > EXACT else 0.0
    return _are_near(side.features.sums[value], other.features.sums[values].sum(axis=0), tolerance + rounding)


def _are_near(a: np.ndarray, b: np.ndarray, limit: float) -> bool:
    _, _, size, square, _, fourth = a
    sizes = np.array([a[0], size, size, square, np.sqrt(square * fourth), fourth])
    weights = np.array([1.0, 1.0, 1.0, 2.0, 4.0, 4.0])
    return bool((np.abs(a - b) <= limit * weights * sizes).all())
