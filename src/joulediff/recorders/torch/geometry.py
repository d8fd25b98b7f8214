"""Where a tensor's elements lie in its storage, whatever the order of its dimensions.

Two tensors with one `Extent` hold the same elements: a permuted, reshaped or squeezed view is no new data.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

Dims = tuple[tuple[int, int], ...]


class Extent(NamedTuple):
    """The elements a tensor sees: `dims` are (size, stride), outermost first, as few as can be."""

    dims: Dims
    repeats: int
    """How often each element is seen, through dimensions of stride 0."""

    @property
    def count(self) -> int:
        """Return how many elements there are, without repeats."""
        total = 1
        for size, _ in self.dims:
            total *= size
        return total

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie side by side."""
        return not self.dims or (len(self.dims) == 1 and self.dims[0][1] == 1)


@lru_cache(maxsize=65536)
def extent_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Extent:
    """Return the extent of a tensor; its offset into the storage is not part of it."""
    if 0 in shape:
        return Extent(((0, 1),), 1)
    repeats = 1
    dims = []
    for size, stride in zip(shape, strides, strict=True):
        if stride == 0:
            repeats *= size
        elif size != 1:
            dims.append((size, stride))
    dims.sort(key=lambda dim: (-dim[1], -dim[0]))
    merged: list[tuple[int, int]] = []
    for size, stride in dims:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return Extent(tuple(merged), repeats)


def overlap(first: Dims, first_at: int, second: Dims, second_at: int) -> bool:
    """Return whether two sets of elements, with their offsets in one storage, may share any.

    Exact for pieces cut from one matrix by rows or columns; else True where the ranges meet.
    """
    if _is_empty(first) or _is_empty(second):
        return False
    if first_at + _reach(first) <= second_at or second_at + _reach(second) <= first_at:
        return False
    pitch = _common_pitch(first, second)
    if pitch is None:
        return True
    a, b = first_at % pitch, second_at % pitch
    a_width, b_width = _row_width(first, pitch), _row_width(second, pitch)
    if a + a_width > pitch or b + b_width > pitch:
        return True  # a row that runs over into the next
    return a < b + b_width and b < a + a_width


def _is_empty(dims: Dims) -> bool:
    return any(size == 0 for size, _ in dims)


def _reach(dims: Dims) -> int:
    """Return the distance from the first element to behind the last."""
    return 1 + sum((size - 1) * stride for size, stride in dims)


def _common_pitch(first: Dims, second: Dims) -> int | None:
    """Return the longest stride that both sets are rows of, if they are."""
    strides = {stride for _, stride in first} & {stride for _, stride in second}
    for pitch in sorted(strides, reverse=True):
        if pitch > 1 and all(s % pitch == 0 or s < pitch for dims in (first, second) for _, s in dims):
            return pitch
    return None


def _row_width(dims: Dims, pitch: int) -> int:
    return 1 + sum((size - 1) * stride for size, stride in dims if stride < pitch)
