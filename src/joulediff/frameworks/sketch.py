"""The sketch of a tensor in NumPy: sums of its elements with random signs, in 16 groups by index.

A recorder adds up `signed_sums` of the blocks of a tensor, in the logical order of its elements, and gives the total to
`to_sketch`. The definition is in `model.signature`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from joulediff.model.signature import SIGN_PERIOD, SKETCH, SKETCH_LIMIT, SKETCH_STEP, mix

# Sums kept at a time: a multiple of SKETCH. NumPy adds rows of this length faster than short ones.
_LANES = 2048


def signed_sums(x: np.ndarray, first: int = 0) -> np.ndarray:
    """Return the sum of each group of a vector of finite doubles whose first element has the index `first`."""
    total = np.zeros(SKETCH)
    at = 0
    while at < x.size:
        period, place = divmod(first + at, SIGN_PERIOD)
        part = x[at : at + SIGN_PERIOD - place]
        sums = _sum_groups(part, _signs()[place : place + part.size])
        total += _flips(period) * (np.roll(sums, place) if place % SKETCH else sums)
        at += part.size
    return total


def to_sketch(sums: Sequence[float] | np.ndarray, sum_x2: float) -> tuple[int, ...] | None:
    """Return the sketch of a tensor by the sums of its groups; None if its norm is 0 or too large for a double."""
    if not 0.0 < sum_x2 < math.inf:
        return None
    steps = np.asarray(sums) / (math.sqrt(sum_x2) * SKETCH_STEP)
    # Squares of the least doubles are inexact, and so is the norm.
    if not (np.abs(steps) < SKETCH_LIMIT).all():
        return None
    return tuple(int(step) for step in np.rint(steps))


@lru_cache(maxsize=4096)
def count_signs(count: int) -> np.ndarray:
    """Return the sums of the groups of a tensor of `count` ones."""
    periods, rest = divmod(count, SIGN_PERIOD)
    total = signed_sums(np.ones(rest), periods * SIGN_PERIOD)
    if periods:
        bits = _mix_all(np.arange(SIGN_PERIOD, SIGN_PERIOD + periods, dtype=np.uint32))
        negative = [int((bits >> np.uint32(group) & np.uint32(1)).sum()) for group in range(SKETCH)]
        total = total + _sum_groups(np.ones(SIGN_PERIOD), _signs()) * (periods - 2.0 * np.array(negative))
    return total


def _mix_all(numbers: np.ndarray) -> np.ndarray:
    """Return `mix` of each of many 32-bit numbers."""
    numbers = numbers ^ numbers >> np.uint32(16)
    numbers = numbers * np.uint32(0x85EBCA6B)
    numbers ^= numbers >> np.uint32(13)
    numbers = numbers * np.uint32(0xC2B2AE35)
    mixed: np.ndarray = numbers ^ numbers >> np.uint32(16)
    return mixed


def _sum_groups(x: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Return the sums of x * signs by index % SKETCH."""
    whole = x.size - x.size % _LANES
    if whole:
        lanes = np.einsum("rl,rl->l", x[:whole].reshape(-1, _LANES), signs[:whole].reshape(-1, _LANES))
    else:
        lanes = np.zeros(-(-x.size // SKETCH) * SKETCH)
    if whole < x.size:
        lanes[: x.size - whole] += x[whole:] * signs[whole:]
    sums: np.ndarray = np.add.reduce(lanes.reshape(-1, SKETCH), axis=0)
    return sums


@lru_cache(maxsize=1)
def _signs() -> np.ndarray:
    """Return the signs of the indices of one period."""
    return np.array([1.0 - 2.0 * (mix(index) & 1) for index in range(SIGN_PERIOD)])


@lru_cache(maxsize=65536)
def _flips(period: int) -> np.ndarray:
    """Return the signs that the groups of a period have beside these."""
    bits = mix(SIGN_PERIOD + period)
    return np.array([1.0 - 2.0 * (bits >> group & 1) for group in range(SKETCH)])
