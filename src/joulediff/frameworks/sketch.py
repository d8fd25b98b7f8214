"""The sketch of a tensor in NumPy: sums of its elements with random signs, in 16 groups by index.

A recorder gives the elements of a tensor to `SignedSums`, block by block, and its total to `to_sketch`. The definition
is in `model.signature`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from joulediff.model.signature import SIGN_PERIOD, SKETCH, SKETCH_LIMIT, SKETCH_STEP, mix

# Sums kept for each block, a multiple of SKETCH: NumPy adds short rows slowly. And blocks whose sums are kept.
_LANES = 512
_BLOCKS = 16


def signed_sums(x: np.ndarray, first: int = 0) -> np.ndarray:
    """Return the sum of each group of a vector of finite doubles whose first element has the index `first`."""
    sums = SignedSums()
    sums.add(x, first)
    return sums.total()


def to_sketch(sums: Sequence[float] | np.ndarray, sum_x2: float) -> tuple[int, ...] | None:
    """Return the sketch of a tensor by the sums of its groups; None if its norm is 0 or too large for a double."""
    if not 0.0 < sum_x2 < math.inf:
        return None
    unit = math.sqrt(sum_x2) * SKETCH_STEP
    # Squares of the least doubles are inexact, and so is the norm.
    if not all(abs(each) < SKETCH_LIMIT * unit for each in sums):
        return None
    return tuple(round(float(each) / unit) for each in sums)


@lru_cache(maxsize=4096)
def count_signs(count: int) -> np.ndarray:
    """Return the sums of the groups of a tensor of `count` ones."""
    periods, rest = divmod(count, SIGN_PERIOD)
    total = signed_sums(np.ones(rest), periods * SIGN_PERIOD)
    if periods:
        bits = _mix_all(np.arange(SIGN_PERIOD, SIGN_PERIOD + periods, dtype=np.uint32))
        negative = [int((bits >> np.uint32(group) & np.uint32(1)).sum()) for group in range(SKETCH)]
        total = total + _signs().reshape(-1, SKETCH).sum(axis=0) * (periods - 2.0 * np.array(negative))
    return total


def _mix_all(numbers: np.ndarray) -> np.ndarray:
    """Return `mix` of each of many 32-bit numbers."""
    numbers = numbers ^ numbers >> np.uint32(16)
    numbers = numbers * np.uint32(0x85EBCA6B)
    numbers ^= numbers >> np.uint32(13)
    numbers = numbers * np.uint32(0xC2B2AE35)
    mixed: np.ndarray = numbers ^ numbers >> np.uint32(16)
    return mixed


class SignedSums:
    """Adds up the elements of a tensor with their signs. Its memory serves one tensor after the other."""

    def __init__(self) -> None:
        self._signs = _signs()
        self._lanes = np.empty((_BLOCKS, _LANES))
        self._places: list[tuple[int, int]] = []
        """Where the blocks begin whose sums are in the lanes: their period of signs, and their place in it."""
        self._total = np.zeros(SKETCH)

    def clear(self) -> None:
        """Begin with another tensor."""
        self._places.clear()
        self._total = np.zeros(SKETCH)

    def add(self, x: np.ndarray, first: int) -> None:
        """Add a vector of doubles whose first element has the index `first`."""
        period, place = divmod(first, SIGN_PERIOD)
        while x.size > SIGN_PERIOD - place:
            part, x = x[: SIGN_PERIOD - place], x[SIGN_PERIOD - place :]
            self._add(part, period, place)
            period, place = period + 1, 0
        self._add(x, period, place)

    def total(self) -> np.ndarray:
        """Return the sum of each group."""
        if self._places:
            self._fold()
        return self._total

    def _add(self, x: np.ndarray, period: int, place: int) -> None:
        if len(self._places) == _BLOCKS:
            self._fold()
        lanes = self._lanes[len(self._places)]
        self._places.append((period, place))
        signs = self._signs[place : place + x.size]
        rest = x.size % _LANES
        whole = x.size - rest
        if whole:
            np.einsum("rl,rl->l", x[:whole].reshape(-1, _LANES), signs[:whole].reshape(-1, _LANES), out=lanes)
        else:
            lanes.fill(0.0)
        if rest:
            lanes[:rest] += x[whole:] * signs[whole:]

    def _fold(self) -> None:
        """Add the sums in the lanes to those of the groups."""
        blocks = len(self._places)
        sums = np.add.reduce(self._lanes[:blocks].reshape(blocks, _LANES // SKETCH, SKETCH), axis=1)
        # A block that does not begin with group 0 has its first element in lane 0 all the same.
        groups = [place % SKETCH for _, place in self._places]
        if any(groups):
            sums = np.take_along_axis(sums, _TURNS[groups], axis=1)
        flips = np.array([_flips(period) for period, _ in self._places])
        self._total += np.add.reduce(sums * flips, axis=0)
        self._places.clear()


# For each group that a block may begin with: the lanes of the groups, from 0.
_TURNS = (np.arange(SKETCH) - np.arange(SKETCH)[:, None]) % SKETCH


@lru_cache(maxsize=1)
def _signs() -> np.ndarray:
    """Return the signs of the indices of one period."""
    return np.array([1.0 - 2.0 * (mix(index) & 1) for index in range(SIGN_PERIOD)])


@lru_cache(maxsize=65536)
def _flips(period: int) -> np.ndarray:
    """Return the signs that the groups of a period have beside these."""
    bits = mix(SIGN_PERIOD + period)
    return np.array([1.0 - 2.0 * (bits >> group & 1) for group in range(SKETCH)])
