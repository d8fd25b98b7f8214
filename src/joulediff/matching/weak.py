"""Anchors of weak values: a loss, a mask, an index, a constant. What they hold says too little.

Two weak values are paired if they hold the same and were computed from the same anchors, or, for what is computed from
nothing that the step was given, if the same anchors are computed from them; never for what they hold alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from joulediff.matching.anchors import DEPTH
from joulediff.matching.joint import Joint
from joulediff.matching.support import find_origin, find_use
from joulediff.runs import Signature

# So many weak values of one origin are compared.
_MOST = 32


def add_weak_anchors(joint: Joint, tolerance: float) -> None:
    """Give anchors to weak entities of both runs that are equal and made of equal things, or used for equal things."""
    found: defaultdict[object, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for entity, anchor in enumerate(joint.anchor):
        if anchor >= 0 or joint.is_strong[entity]:
            continue
        signature = _signature(joint, entity)
        if signature is None or not signature.finite:
            continue
        around = _origin(joint, entity) if joint.is_derived[entity] else find_use(joint, entity)
        if around:
            key = (joint.is_derived[entity], frozenset(joint.put_together(around)), signature.count)
            found[key][int(entity >= joint.entities)].append(entity)
    number = max(joint.anchor, default=-1) + 1
    for ours, theirs in found.values():
        for one, other in _pairs(joint, ours, theirs, tolerance):
            joint.anchor[one] = joint.anchor[other] = number
            number += 1


def _origin(joint: Joint, entity: int) -> frozenset[int]:
    found = find_origin(joint, entity)
    return frozenset() if found is None else found.anchors


def _pairs(joint: Joint, ours: list[int], theirs: list[int], tolerance: float) -> Iterator[tuple[int, int]]:
    """Yield equal entities in the order in which they were made."""
    left = list(theirs)
    for one in ours[:_MOST]:
        for other in left[:_MOST]:
            if _are_equal(joint, one, other, tolerance):
                left.remove(other)
                yield one, other
                break


def _are_equal(joint: Joint, one: int, other: int, tolerance: float) -> bool:
    a, b = _signature(joint, one), _signature(joint, other)
    assert a is not None and b is not None
    slack = tolerance + DEPTH * max(_rounding(joint, one), _rounding(joint, other))
    if a.integral or b.integral:
        slack = 0.0
    pairs = ((a.low, b.low), (a.high, b.high), (a.sum_x, b.sum_x), (a.sum_abs, b.sum_abs), (a.sum_x2, b.sum_x2))
    scale = math.sqrt(max(a.sum_x2, b.sum_x2) / max(1, a.count))
    scales = (scale, scale, scale * a.count, scale * a.count, scale * scale * a.count)
    return all(
        abs((x or 0.0) - (y or 0.0)) <= max(slack, 1e-12) * size for (x, y), size in zip(pairs, scales, strict=True)
    )


def _signature(joint: Joint, entity: int) -> Signature | None:
    side = joint.sides[int(entity >= joint.entities)]
    return side.graph.run.signature_of(joint.values[entity][0])


def _rounding(joint: Joint, entity: int) -> float:
    side = joint.sides[int(entity >= joint.entities)]
    return float(side.features.rounding[joint.values[entity][0]])
