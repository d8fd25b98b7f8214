"""Anchors checked by their context: unsupported ones are dropped, and weak values get anchors.

Two tensors may have similar sums without being equal, most often where neither has a counterpart; residual streams of
neighbouring layers even have similar sketches. Equal tensors are computed from equal tensors: an anchor is supported if
both sides were computed from the same nearest anchors, except for weights that one run holds fused. An unsupported
anchor is kept only if its distance is nearly zero.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from joulediff.matching.anchors import DEPTH, DRIFT, Anchor, have_same_order, order_of
from joulediff.matching.features import SAME_SKETCH, is_same_weak_value, sketch_distance
from joulediff.matching.joint_graph import JointGraph
from joulediff.model.signature import Signature

# An unsupported anchor may have this many times the distance of nearly all supported ones.
FAR = 2.0
_NEARLY_ALL = 95
# Distances that come from the order of summation, and from the rounding of float32.
_LEAST, EXACT = 1e-8, 1e-5
# Most anchors, and entities without one, to visit in a search for the nearest anchors.
_MOST = 2048
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Origin:
    """The nearest anchors that an entity was computed from."""

    anchors: frozenset[int]
    is_open: bool
    """Whether it also depends on tensors that only this run was given, such as fused or folded weights."""


Origins = Mapping[int, tuple["Origin | None", "Origin | None"]]


def drop_unsupported_anchors(joint: JointGraph, anchors: Sequence[Anchor]) -> None:
    """Remove the anchors that are neither supported nor exact.

    A wrong anchor takes the support from those computed from it, so the earliest doubtful ones are removed first.
    """
    made, siblings = _find_first_computed(joint), _find_siblings(joint)
    for _ in range(_ROUNDS):
        origins = {
            number: (find_origin(joint, pair[0]), find_origin(joint, pair[1]))
            for number, pair in made.items()
            if joint.anchor_of[pair[0]] >= 0 and number < len(anchors)
        }
        supported = {number: _is_supported(joint, origins, siblings, made[number]) for number in origins}
        near = [anchors[number].distance for number in origins if supported[number] and not anchors[number].has_order]
        limit = min(EXACT, max(_LEAST, FAR * float(np.percentile(near, _NEARLY_ALL)))) if near else _LEAST
        doubtful = {
            number
            for number in origins
            if not supported[number]
            and anchors[number].distance > (SAME_SKETCH if anchors[number].has_order else limit)
        }
        if not doubtful:
            return
        roots = {n for n in doubtful if not any(each and each.anchors & doubtful for each in origins[n])}
        dropped = roots or doubtful
        for entity, anchor in enumerate(joint.anchor_of):
            if anchor in dropped:
                joint.anchor_of[entity] = -1


def _find_siblings(joint: JointGraph) -> dict[int, list[int]]:
    """Return for each entity its siblings: outputs of the same operator, or parts of the same whole."""
    found: dict[int, list[int]] = {}
    for makes in joint.makes:
        if len(makes) > 1:
            found |= dict.fromkeys(makes, makes)
    for side, first in ((joint.sides[0], 0), (joint.sides[1], joint.first_entity_of_b)):
        for each in side.compositions:
            if each.is_split:
                parts = [int(side.equivalence.entity_of[value]) + first for value in each.parts]
                found |= dict.fromkeys(parts, parts)
    return found


def _find_first_computed(joint: JointGraph) -> dict[int, tuple[int, int]]:
    """Return for each anchor the first computed entity of each run; not for anchors with none in one of the runs."""
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for entity, anchor in enumerate(joint.anchor_of):
        if anchor >= 0 and joint.makers[entity]:
            found[joint.side_of_entity(entity)].setdefault(anchor, entity)
    return {anchor: (found[0][anchor], found[1][anchor]) for anchor in sorted(found[0].keys() & found[1].keys())}


def _is_supported(
    joint: JointGraph, origins: Origins, siblings: Mapping[int, list[int]], pair: tuple[int, int]
) -> bool:
    both = [origin for origin in origins[joint.anchor_of[pair[0]]] if origin is not None and origin.anchors]
    if len(both) < len(pair):
        return False
    wholes = [joint.merge_parts(each.anchors) for each in both]
    for mine, theirs in ((0, 1), (1, 0)):
        # One run may compute siblings by one operator, from the inputs of all of them; the other run one by one.
        related = [joint.anchor_of[each] for each in siblings.get(pair[mine], ())]
        shared = _list_origins(origins, related, theirs)
        # One run may compute the result from an intermediate tensor that the other run computes beside the result.
        between = _list_origins(origins, wholes[theirs] - wholes[mine], theirs)
        known = wholes[theirs].union(*shared, *between)
        more = _find_underived(wholes[mine] - known, known, origins, mine)
        if more and not (both[theirs].is_open and more <= joint.given_anchors):
            return False
    return True


def _list_origins(origins: Origins, anchors: Iterable[int], side: int) -> list[frozenset[int]]:
    """Return the anchors that some anchors were computed from in one run, where these are known."""
    found = [origins[each][side] for each in anchors if each in origins]
    return [each.anchors for each in found if each is not None]


def _find_underived(more: set[int], known: set[int], origins: Origins, side: int) -> set[int]:
    """Return the anchors that a run does not compute from known anchors alone."""
    while True:
        derived = {e for e in more if e in origins and (found := origins[e][side]) and found.anchors <= known}
        if not derived:
            return more
        more, known = more - derived, known | derived


def find_origin(joint: JointGraph, entity: int) -> Origin | None:
    """Return the nearest anchors that an entity was computed from; None if the search visits too many entities."""
    found = _find_nearest_anchors(joint, entity, joint.makers, joint.reads)
    if found is None:
        return None
    anchors, seen = found
    return Origin(frozenset(anchors), any(joint.is_strong[each] and not joint.makers[each] for each in seen))


def find_uses(joint: JointGraph, entity: int) -> set[int] | None:
    """Return the nearest anchors computed from an entity; None if the search visits too many entities."""
    found = _find_nearest_anchors(joint, entity, joint.readers, joint.makes)
    return None if found is None else found[0]


def _find_nearest_anchors(
    joint: JointGraph, entity: int, ops: Sequence[Sequence[int]], entities: Sequence[Sequence[int]]
) -> tuple[set[int], set[int]] | None:
    """Return the nearest anchors in one direction, and the entities without an anchor on the paths to them."""
    found, seen, waiting = set[int](), {entity}, [entity]
    anchor_of = joint.anchor_of
    while waiting:
        for op in ops[waiting.pop()]:
            for each in entities[op]:
                if anchor_of[each] >= 0:
                    found.add(anchor_of[each])
                elif each not in seen:
                    seen.add(each)
                    waiting.append(each)
            if len(found) > _MOST or len(seen) > _MOST:
                return None
    return found, seen


# Most weak values of one context that are compared with each other.
_MOST_WEAK = 32


def add_weak_anchors(joint: JointGraph, tolerance: float) -> None:
    """Give anchors to weak entities that are equal in both runs and have equal context.

    The context is the anchors that the entity was computed from; for a constant, the anchors computed from it.
    """
    found: defaultdict[object, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for entity, anchor in enumerate(joint.anchor_of):
        signature = None if anchor >= 0 else signature_of(joint, entity)
        if signature is None or not signature.finite or (joint.is_strong[entity] and signature.sketch is None):
            continue
        around = _origin(joint, entity) if joint.is_derived[entity] else find_uses(joint, entity)
        if around:
            key = (joint.is_derived[entity], frozenset(joint.merge_parts(around)), signature.count)
            found[key][joint.side_of_entity(entity)].append(entity)
    number = max(joint.anchor_of, default=-1) + 1
    for ours, theirs in found.values():
        for one, other in _pair_equal(joint, ours, theirs, tolerance):
            joint.anchor_of[one] = joint.anchor_of[other] = number
            number += 1


def _origin(joint: JointGraph, entity: int) -> frozenset[int]:
    found = _find_nearest_anchors(joint, entity, joint.makers, joint.reads)
    return frozenset() if found is None else frozenset(found[0])


def _pair_equal(joint: JointGraph, ours: list[int], theirs: list[int], tolerance: float) -> Iterator[tuple[int, int]]:
    """Yield pairs of equal entities, in the order in which they were computed."""
    left = list(theirs)
    for one in ours[:_MOST_WEAK]:
        for other in left[:_MOST_WEAK]:
            if are_equal(joint, one, other, tolerance):
                left.remove(other)
                yield one, other
                break


def are_equal(joint: JointGraph, one: int, other: int, tolerance: float) -> bool:
    """Return whether the signatures of two entities agree, extremes included; both must have one."""
    a, b = signature_of(joint, one), signature_of(joint, other)
    assert a is not None and b is not None
    if a.overflows or b.overflows:
        # A mask is filled with the lowest number of its type; only squares of the lowest float64 overflow. It equals
        # the mask of another type. Of two such masks too little is left to compare.
        return a.overflows != b.overflows
    rounding = max(_rounding(joint, one), _rounding(joint, other))
    if not is_same_weak_value(a, b, tolerance=tolerance + DEPTH * rounding):
        return False
    apart = order_distance(joint, one, other)
    return apart is None or apart <= tolerance + SAME_SKETCH + DRIFT * rounding


def order_distance(joint: JointGraph, one: int, other: int) -> float | None:
    """Return the distance of the sketches of two entities; None where the orders of their elements may differ."""
    sides = joint.sides[joint.side_of_entity(one)], joint.sides[joint.side_of_entity(other)]
    values = joint.values[one][0], joint.values[other][0]
    orders = [order_of(side.graph.run.values[value]) for side, value in zip(sides, values, strict=True)]
    apart = float(sketch_distance(sides[0].features.sketches[values[0]], sides[1].features.sketches[values[1]]))
    return apart if have_same_order(*orders) and math.isfinite(apart) else None


def signature_of(joint: JointGraph, entity: int) -> Signature | None:
    """Return the signature of the first value of an entity; None if it has no value or signature of its own."""
    side = joint.sides[joint.side_of_entity(entity)]
    return side.graph.run.signature_of(joint.values[entity][0]) if joint.values[entity] else None


def _rounding(joint: JointGraph, entity: int) -> float:
    side = joint.sides[joint.side_of_entity(entity)]
    return float(side.features.rounding[joint.values[entity][0]])
