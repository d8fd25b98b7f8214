"""Tensors that one run holds as a whole and the other one in parts, with no operator that splits or joins them.

A merged product (`gate_up`) equals the products of the other run one after the other: counts and power sums add up. For
weights the sums are exact. For computed tensors rounding blurs the sums, so their origin must agree too: the whole is
computed from the tensors that its parts are computed from, and from no others. A whole found in this way is replaced by
its parts (`JointGraph.split`), so that everything after it sees equal tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from joulediff.matching.anchor_support import Origin, find_origin
from joulediff.matching.anchors import DEPTH
from joulediff.matching.features import SAME
from joulediff.matching.joint_graph import JointGraph

# Most parts of one tensor, and most rounds: parts of parts are found in the next one.
_PARTS = 64
_ROUNDS = 8
# Sums of weights that were read from the same file, over another order of elements.
EXACT = 1e-7
Key = tuple[int, frozenset[int]]


def split_merged_tensors(joint: JointGraph, tolerance: float) -> None:
    """Replace merged weights, and the tensors computed from them, by the parts that the other run has."""
    _split_weights(joint)
    for _ in range(_ROUNDS):
        if not _split_computed(joint, tolerance):
            return


def _split_weights(joint: JointGraph) -> None:
    given = [
        [each for each in _list_open(joint, side) if not joint.makers[each] and joint.readers[each]] for side in (0, 1)
    ]
    for side in given:
        side.sort(key=lambda entity: joint.readers[entity][0])
    for wholes, parts in (given, given[::-1]):
        taken = set[int]()
        for whole in wholes:
            left = [each for each in parts if each not in taken and joint.anchor_of[each] < 0]
            found = _find_run(joint, whole, left, EXACT)
            if found:
                taken.update(found)
                joint.split(whole, found)


def _split_computed(joint: JointGraph, tolerance: float) -> bool:
    """Split wholes whose parts are all computed from the same tensors; return whether any was split."""
    by_key: tuple[defaultdict[Key, list[int]], ...] = (defaultdict(list), defaultdict(list))
    origins: dict[int, Origin] = {}
    for side in (0, 1):
        for entity in _list_open(joint, side):
            origin = find_origin(joint, entity) if joint.makers[entity] else None
            if origin is not None and origin.anchors:
                origins[entity] = origin
                by_key[side][_key(joint, origin)].append(entity)
    changed = False
    for mine, theirs in (by_key, by_key[::-1]):
        for key, wholes in mine.items():
            for whole in wholes:
                left = [each for each in theirs.get(key, ()) if joint.anchor_of[each] < 0]
                if len(left) < 2 or not joint.makers[whole]:
                    continue
                found = _find_run(joint, whole, left, tolerance)
                if found and frozenset().union(*(origins[p].anchors for p in found)) == origins[whole].anchors:
                    joint.split(whole, found)
                    changed = True
    return changed


def _key(joint: JointGraph, origin: Origin) -> Key:
    """Return the computed tensors that a tensor was computed from: weights differ from part to part."""
    return 0, frozenset(each for each in origin.anchors if each not in joint.given_anchors)


def _list_open(joint: JointGraph, side: int) -> Iterator[int]:
    """Yield the strong entities of one side without an anchor."""
    for entity, anchor in enumerate(joint.anchor_of):
        if anchor < 0 and joint.is_strong[entity] and joint.entity_sides[entity] == side and joint.values[entity]:
            yield entity


def _find_run(joint: JointGraph, whole: int, parts: Sequence[int], tolerance: float) -> list[int]:
    """Return consecutive parts whose counts and sums add up to those of the whole; none if there are none."""
    sums, count, rounding = _sums(joint, whole)
    limit = max(SAME, tolerance + (DEPTH * rounding if tolerance > EXACT else 0.0))
    rows = [_sums(joint, each) for each in parts]
    for begin in range(len(parts)):
        total, size = np.zeros_like(sums), 0.0
        for end in range(begin, min(len(parts), begin + _PARTS)):
            total = total + rows[end][0]
            size += rows[end][1]
            if size >= count:
                if size == count and end > begin and _are_near(sums, total, limit):
                    return list(parts[begin : end + 1])
                break
    return []


def _sums(joint: JointGraph, entity: int) -> tuple[np.ndarray, float, float]:
    features, value = joint.sides[joint.entity_sides[entity]].features, joint.values[entity][0]
    return features.sums[value], float(features.counts[value]), float(features.rounding[value])


def _are_near(a: np.ndarray, b: np.ndarray, limit: float) -> bool:
    _, _, size, square, _, fourth = a
    sizes = np.array([a[0], size, size, square, np.sqrt(square * fourth), fourth])
    weights = np.array([1.0, 1.0, 1.0, 2.0, 4.0, 4.0])
    return bool((np.abs(a - b) <= limit * weights * sizes).all())
