"""The positions of a tensor's elements in its storage, with and without the order of its dimensions.

Two tensors with equal `Extent.dims` have the same elements: a permuted, reshaped or squeezed view is no new data. With
equal `Extent.order` they have them in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

Dims = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements a tensor sees: `dims` are (size, stride), outermost first, as few as can be."""

    dims: Dims
    repeats: int
    """The repeat count of each element, from dimensions of stride 0."""
    order: Dims
    """The same elements as `dims`, in the order of the tensor's own dimensions."""

    @property
    def count(self) -> int:
        """Return how many elements there are, without repeats."""
        total = 1
        for size, _ in self.dims:
            total *= size
        return total

    @property
    def is_dense(self) -> bool:
        """Whether the elements are adjacent in memory."""
        return not self.dims or (len(self.dims) == 1 and self.dims[0][1] == 1)


@lru_cache(maxsize=65536)
def extent_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Extent:
    """Return the extent of a tensor; its offset into the storage is not part of it."""
    if 0 in shape:
        return Extent(((0, 1),), 1, ((0, 1),))
    repeats = 1
    dims = []
    for size, stride in zip(shape, strides, strict=True):
        if stride == 0:
            repeats *= size
        elif size != 1:
            dims.append((size, stride))
    order = _merge(dims)
    dims.sort(key=lambda dim: (-dim[1], -dim[0]))
    return Extent(_merge(dims), repeats, order)


def _merge(dims: Iterable[tuple[int, int]]) -> Dims:
    """Return as few dimensions as have the same elements in the same order."""
    merged: list[tuple[int, int]] = []
    for size, stride in dims:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)


def overlap(first: Dims, first_at: int, second: Dims, second_at: int) -> bool:
    """Return whether two sets of elements, with their offsets in one storage, may share any.

    Exact for slices of one tensor that take different rows or columns; else True where the ranges meet.
    """
    if _is_empty(first) or _is_empty(second):
        return False
    if first_at + _reach(first) <= second_at or second_at + _reach(second) <= first_at:
        return False
    for pitch, first_row, second_row in _common_rows(first, second):
        a, b = first_at % pitch, second_at % pitch
        if a + _reach(first_row) <= pitch and b + _reach(second_row) <= pitch:
            return overlap(first_row, a, second_row, b)
    return True


def covers(first: Dims, first_at: int, second: Dims, second_at: int) -> bool:
    """Return whether the first set surely holds every element of the second, of which there are any.

    It does where it has no gaps, or is the same.
    """
    if _is_empty(second):
        return False
    if first == second:
        return first_at == second_at
    is_dense = len(first) == 1 and first[0][1] == 1
    return is_dense and first_at <= second_at and second_at + _reach(second) <= first_at + first[0][0]


def _is_empty(dims: Dims) -> bool:
    """Return whether there are no elements; `extent_of` has one form for that."""
    return dims == ((0, 1),)


@lru_cache(maxsize=65536)
def _reach(dims: Dims) -> int:
    """Return the distance from the first element to behind the last."""
    return 1 + sum((size - 1) * stride for size, stride in dims)


@lru_cache(maxsize=65536)
def _common_rows(first: Dims, second: Dims) -> list[tuple[int, Dims, Dims]]:
    """Return the row strides that both sets share, the longest first, and the part of a row that each set has."""
    common = {stride for _, stride in first} & {stride for _, stride in second}
    strides = [stride for dims in (first, second) for _, stride in dims]
    pitches = [pitch for pitch in common if pitch > 1 and all(s % pitch == 0 or s < pitch for s in strides)]
    return [(pitch, _row(first, pitch), _row(second, pitch)) for pitch in sorted(pitches, reverse=True)]


def _row(dims: Dims, pitch: int) -> Dims:
    return tuple(dim for dim in dims if dim[1] < pitch)
