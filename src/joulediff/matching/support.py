"""Anchors that nothing supports are taken back.

Two tensors may look alike without being equal, most of all where neither has a counterpart. Equal ones are computed
from equal ones: an anchor is supported if the nearest anchors that its two sides were made from are the same, or the
one are part of the other, as with fused weights. One that is not must at least be exact, and as near as others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from joulediff.matching.anchors import Anchor
from joulediff.matching.joint import Joint

# An anchor without support may lie so many times as far apart as nearly all of those with it.
FAR = 2.0
_NEARLY_ALL = 95
# The order of summing alone moves features so far, the rounding of float32 so far.
_LEAST, EXACT = 1e-8, 1e-5
# How many anchors, and entities without one, to look at on the way back.
_MOST = 256
_ROUNDS = 20


def drop_unsupported(joint: Joint, anchors: Sequence[Anchor]) -> None:
    """Take the anchors away that are neither supported nor exact.

    What was made from a wrong anchor lacks support for its sake, so those at the root go first.
    """
    made = _first_made(joint, len(anchors))
    for _ in range(_ROUNDS):
        origins = {
            number: (find_origin(joint, pair[0]), find_origin(joint, pair[1]))
            for number, pair in enumerate(made)
            if pair is not None and joint.anchor[pair[0]] >= 0
        }
        alike = {number: _are_alike(joint, *pair) for number, pair in origins.items()}
        near = [anchors[number].distance for number in origins if alike[number]]
        limit = min(EXACT, max(_LEAST, FAR * float(np.percentile(near, _NEARLY_ALL)))) if near else _LEAST
        doubtful = {number for number in origins if not alike[number] and anchors[number].distance > limit}
        if not doubtful:
            return
        roots = {number for number in doubtful if not any(each and each & doubtful for each in origins[number])}
        dropped = roots or doubtful
        for entity, anchor in enumerate(joint.anchor):
            if anchor in dropped:
                joint.anchor[entity] = -1


def _first_made(joint: Joint, count: int) -> list[tuple[int, int] | None]:
    """Return for each anchor the first entity of each run that was computed; None if one was there before."""
    found: list[list[int | None]] = [[None, None] for _ in range(count)]
    for entity, anchor in enumerate(joint.anchor):
        side = int(entity >= joint.entities)
        if anchor >= 0 and joint.makers[entity] and found[anchor][side] is None:
            found[anchor][side] = entity
    return [None if one is None or other is None else (one, other) for one, other in found]


def _are_alike(joint: Joint, ours: set[int] | None, theirs: set[int] | None) -> bool:
    if ours is None or theirs is None:
        return False
    ours, theirs = joint.put_together(ours), joint.put_together(theirs)
    return bool(ours and theirs) and (ours <= theirs or theirs <= ours)


def find_origin(joint: Joint, entity: int) -> set[int] | None:
    """Return the nearest anchors that an entity was computed from; None if they are too far or too many."""
    return _find_around(joint, entity, joint.makers, joint.reads)


def find_use(joint: Joint, entity: int) -> set[int] | None:
    """Return the nearest anchors that are computed from an entity; None if they are too far or too many."""
    return _find_around(joint, entity, joint.readers, joint.makes)


def _find_around(
    joint: Joint, entity: int, ops: Sequence[Sequence[int]], entities: Sequence[Sequence[int]]
) -> set[int] | None:
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
    return found
