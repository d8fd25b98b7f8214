"""Were two runs given the same? Only then do equal tensors mean equal work.

An input differs if the other run has none like it and has one of its shape that this run lacks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from joulediff.errors import JoulediffError
from joulediff.matching.anchors import Side, slack_of
from joulediff.runs import Signature

# Some weights may differ, as those of a part that was trained; if more than this share do, it is another model.
MOST_WEIGHTS = 0.5
# Inputs are compared each with each.
_MOST = 200


def refuse_other_inputs(a: Side, b: Side, tolerance: float) -> None:
    """Raise for runs whose inputs differ, or most of whose weights do, with the first that does."""
    for kinds, word, most in ((("input",), "inputs", 0.0), (("parameter", "buffer"), "weights", MOST_WEIGHTS)):
        ours, theirs = _given(a, kinds), _given(b, kinds)
        other = _find_other(a, b, ours, theirs, tolerance)
        if other and len(other) > most * len(ours):
            value = a.graph.run.values[other[0]]
            what = f"{value.name or 'one'} ({'x'.join(map(str, value.shape)) or 'a number'}, {value.dtype})"
            raise JoulediffError(
                f"{a.graph.run.label} and {b.graph.run.label} were given different {word}: first {what}",
                fix="record both with the same inputs, seed and weights",
            )


def _given(side: Side, kinds: Sequence[str]) -> list[int]:
    """Return what a step was given and reads, in that order; nothing that is empty, and few of very many."""
    values, seen = side.graph.run.values, dict[int, None]()
    for reads in side.graph.reads:
        seen |= {v: None for v in reads if values[v].kind in kinds and values[v].producer is None}
        if len(seen) > _MOST:
            break
    return [value for value in seen if side.features.counts[value]]


def _find_other(a: Side, b: Side, ours: Sequence[int], theirs: Sequence[int], tolerance: float) -> list[int]:
    """Return what only a was given, where b was given something else of that shape."""
    equal = _are_equal(a, b, ours, theirs, tolerance)
    found_a, found_b = np.asarray(equal.any(axis=1)).tolist(), np.asarray(equal.any(axis=0)).tolist()
    values, others = a.graph.run.values, b.graph.run.values
    shapes = {others[number].shape for number, found in zip(theirs, found_b, strict=True) if not found}
    return [n for n, found in zip(ours, found_a, strict=True) if not found and values[n].shape in shapes]


def _are_equal(a: Side, b: Side, ours: Sequence[int], theirs: Sequence[int], tolerance: float) -> npt.NDArray[np.bool_]:
    """Return which inputs of a are which of b."""
    one, other = np.array(ours, dtype=np.int64), np.array(theirs, dtype=np.int64)
    apart = np.abs(a.features.rows[one][:, None] - b.features.rows[other][None]).max(axis=2, initial=0.0)
    slack = np.maximum(slack_of(a, one)[:, None], slack_of(b, other)[None])
    strong = a.features.strong[one][:, None] & b.features.strong[other][None]
    equal = np.asarray(strong & (apart <= tolerance + slack))
    signatures = [b.graph.run.signature_of(number) for number in theirs]
    for at in np.flatnonzero(~strong.all(axis=1)).tolist():
        mine = a.graph.run.signature_of(ours[at])
        for to in np.flatnonzero(~strong[at]).tolist():
            signature = signatures[to]
            equal[at, to] = mine is None or signature is None or _hold_the_same(mine, signature)
    return equal


def _hold_the_same(a: Signature, b: Signature) -> bool:
    """Return whether weak values are equal: indices to the last one, single numbers up to float16's rounding."""
    exact = a.integral or b.integral
    pairs = ((a.count, b.count), (a.low, b.low), (a.high, b.high), (a.sum_x, b.sum_x), (a.sum_x2, b.sum_x2))
    return all(_are_close(x, y, 0.0 if exact else 2**-7) for x, y in pairs)


def _are_close(x: float | None, y: float | None, share: float) -> bool:
    if x is None or y is None or x == y:
        return x == y
    return abs(x - y) <= share * max(abs(x), abs(y))
