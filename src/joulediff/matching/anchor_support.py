"""Anchors that nothing supports are taken back.

Two tensors may look alike without being equal, most of all where neither has a counterpart. Equal ones are computed
from equal ones: an anchor is supported if the nearest anchors that its two sides were made from are the same, but for
weights that one run has fused. One that is not must at least be exact, and as near as others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from joulediff.matching.anchors import DEPTH, Anchor
from joulediff.matching.features import is_same_weak_value
from joulediff.matching.joint_graph import Joint
from joulediff.model.signature import Signature

# An anchor without support may lie so many times as far apart as nearly all of those with it.
FAR = 2.0
_NEARLY_ALL = 95
# The order of summing alone moves features so far, the rounding of float32 so far.
_LEAST, EXACT = 1e-8, 1e-5
# How many anchors, and entities without one, to look at on the way back.
_MOST = 2048
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Origin:
    """The nearest anchors that something was computed from."""

    anchors: frozenset[int]
    is_open: bool
    """Tensors that only this run was given went into it too: weights that are fused or folded."""


Origins = Mapping[int, tuple["Origin | None", "Origin | None"]]


def drop_unsupported(joint: Joint, anchors: Sequence[Anchor]) -> None:
    """Take the anchors away that are neither supported nor exact.

    What was made from a wrong anchor lacks support for its sake, so those at the root go first.
    """
    made, families = _first_made(joint), _families(joint)
    for _ in range(_ROUNDS):
        origins = {
            number: (find_origin(joint, pair[0]), find_origin(joint, pair[1]))
            for number, pair in made.items()
            if joint.anchor[pair[0]] >= 0
        }
        alike = {number: _are_alike(joint, origins, families, made[number]) for number in origins}
        near = [anchors[number].distance for number in origins if alike[number]]
        limit = min(EXACT, max(_LEAST, FAR * float(np.percentile(near, _NEARLY_ALL)))) if near else _LEAST
        doubtful = {number for number in origins if not alike[number] and anchors[number].distance > limit}
        if not doubtful:
            return
        roots = {n for n in doubtful if not any(each and each.anchors & doubtful for each in origins[n])}
        dropped = roots or doubtful
        for entity, anchor in enumerate(joint.anchor):
            if anchor in dropped:
                joint.anchor[entity] = -1


def _families(joint: Joint) -> dict[int, list[int]]:
    """Return for each entity those that were made with it: by one operator, or as parts of one whole."""
    found: dict[int, list[int]] = {}
    for makes in joint.makes:
        if len(makes) > 1:
            found |= dict.fromkeys(makes, makes)
    for side, first in ((joint.sides[0], 0), (joint.sides[1], joint.entities)):
        for each in side.parts:
            if each.is_split:
                parts = [int(side.classes.entity[value]) + first for value in each.parts]
                found |= dict.fromkeys(parts, parts)
    return found


def _first_made(joint: Joint) -> dict[int, tuple[int, int]]:
    """Return the first entity of each run that was computed, for anchors of which none was there before."""
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for entity, anchor in enumerate(joint.anchor):
        if anchor >= 0 and joint.makers[entity]:
            found[int(entity >= joint.entities)].setdefault(anchor, entity)
    return {anchor: (found[0][anchor], found[1][anchor]) for anchor in sorted(found[0].keys() & found[1].keys())}


def _are_alike(joint: Joint, origins: Origins, families: Mapping[int, list[int]], pair: tuple[int, int]) -> bool:
    both = [origin for origin in origins[joint.anchor[pair[0]]] if origin is not None and origin.anchors]
    if len(both) < len(pair):
        return False
    wholes = [joint.put_together(each.anchors) for each in both]
    for mine, theirs in ((0, 1), (1, 0)):
        # One may be made with others by one operator, of what each of these is made of in the other run.
        related = [joint.anchor[each] for each in families.get(pair[mine], ())]
        shared = [found.anchors for each in related if each in origins and (found := origins[each][theirs]) is not None]
        # One run may compute on the way, from what the other reads, what that one has beside its result.
        between = [
            found.anchors for e in wholes[theirs] - wholes[mine] if e in origins and (found := origins[e][theirs])
        ]
        known = wholes[theirs].union(*shared, *between)
        more = _not_derived(wholes[mine] - known, known, origins, mine)
        if more and not (both[theirs].is_open and more <= joint.given):
            return False
    return True


def _not_derived(more: set[int], known: set[int], origins: Origins, side: int) -> set[int]:
    """Return which anchors a run does not compute from known ones alone."""
    while True:
        derived = {e for e in more if e in origins and (found := origins[e][side]) and found.anchors <= known}
        if not derived:
            return more
        more, known = more - derived, known | derived


def find_origin(joint: Joint, entity: int) -> Origin | None:
    """Return the nearest anchors that an entity was computed from; None if they are too far or too many."""
    found = _find_around(joint, entity, joint.makers, joint.reads)
    if found is None:
        return None
    anchors, seen = found
    return Origin(frozenset(anchors), any(joint.is_strong[each] and not joint.makers[each] for each in seen))


def find_use(joint: Joint, entity: int) -> set[int] | None:
    """Return the nearest anchors that are computed from an entity; None if they are too far or too many."""
    found = _find_around(joint, entity, joint.readers, joint.makes)
    return None if found is None else found[0]


def _find_around(
    joint: Joint, entity: int, ops: Sequence[Sequence[int]], entities: Sequence[Sequence[int]]
) -> tuple[set[int], set[int]] | None:
    """Return the nearest anchors in one direction, and the entities without one on the way."""
    found, seen, waiting = set[int](), {entity}, [entity]
    while waiting:
        for op in ops[waiting.pop()]:
            for each in entities[op]:
                if joint.anchor[each] >= 0:
                    found.add(joint.anchor[each])
                elif each not in seen:
                    seen.add(each)
                    waiting.append(each)
            if len(found) > _MOST or len(seen) > _MOST:
                return None
    return found, seen


# So many weak values of one origin are compared.
_MOST_WEAK = 32


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
    for one in ours[:_MOST_WEAK]:
        for other in left[:_MOST_WEAK]:
            if _are_equal(joint, one, other, tolerance):
                left.remove(other)
                yield one, other
                break


def _are_equal(joint: Joint, one: int, other: int, tolerance: float) -> bool:
    a, b = _signature(joint, one), _signature(joint, other)
    assert a is not None and b is not None
    if math.isinf(a.sum_x2) or math.isinf(b.sum_x2):
        # A mask is filled with the lowest number of its type; only squares of the lowest float64 overflow. It equals
        # the mask of another type. Of two such masks too little is left to compare.
        return a.sum_x2 != b.sum_x2
    slack = DEPTH * max(_rounding(joint, one), _rounding(joint, other))
    return is_same_weak_value(a, b, tolerance=tolerance + slack)


def _signature(joint: Joint, entity: int) -> Signature | None:
    side = joint.sides[int(entity >= joint.entities)]
    return side.graph.run.signature_of(joint.values[entity][0])


def _rounding(joint: Joint, entity: int) -> float:
    side = joint.sides[int(entity >= joint.entities)]
    return float(side.features.rounding[joint.values[entity][0]])
