"""Layout as a suspect: the same operator reads other strides, another type or another alignment, and where that began.

The origin is followed back through the operators that hand a layout on: to a tensor that the step was given, or to the
operator that made it so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from joulediff.model.run import Run, Value

Aspect = Literal["dtype", "memory_format", "strides", "alignment"]

_MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class LayoutDifference:
    """One input of an operator that is laid out in another way on the two sides."""

    position: int
    aspect: Aspect
    text_a: str
    text_b: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a layout began: an operator of the step, or a tensor it was given, which `op` reads first."""

    op: int
    given: str | None
    """The tensor's name, or what it is, where the step was given it."""


def find_differences(a: Run, op_a: int, b: Run, op_b: int) -> list[LayoutDifference]:
    """Return how the inputs of two calls of one operator differ; types first, then order, then alignment."""
    found = []
    pairs = zip(a.ops[op_a].inputs, b.ops[op_b].inputs, strict=False)
    for position, (left, right) in enumerate((a.values[x], b.values[y]) for x, y in pairs):
        if left.dtype != right.dtype:
            found.append(LayoutDifference(position, "dtype", left.dtype, right.dtype))
        if _order(left) != _order(right) or _has_gaps(left) != _has_gaps(right):
            is_format = _is_format(left) and _is_format(right) and _order(left) != _order(right)
            aspect: Aspect = "memory_format" if is_format else "strides"
            found.append(LayoutDifference(position, aspect, _tell(left, aspect), _tell(right, aspect)))
        elif left.is_aligned != right.is_aligned:
            texts = ("aligned" if value.is_aligned else "not aligned to 16 bytes" for value in (left, right))
            found.append(LayoutDifference(position, "alignment", *texts))
    rank = {"dtype": 0, "memory_format": 1, "strides": 2, "alignment": 3}
    return sorted(found, key=lambda each: rank[each.aspect])


def find_origin(run: Run, op: int, difference: LayoutDifference) -> Origin:
    """Return where the layout of an input began."""
    value, reader = run.ops[op].inputs[difference.position], op
    for _ in range(_MAX_STEPS):
        found = run.values[value]
        maker = found.producer
        if maker is None:
            return Origin(reader, found.name or found.kind)
        source = next((v for v in run.ops[maker].inputs if _hands_on(run.values[v], found, difference.aspect)), None)
        if source is None:
            return Origin(maker, None)
        value, reader = source, maker
    return Origin(reader, None)


def _hands_on(source: Value, made: Value, aspect: Aspect) -> bool:
    """Return whether a tensor has its layout from another one."""
    if aspect == "dtype":
        return source.dtype == made.dtype
    if aspect == "alignment":
        return source.is_aligned == made.is_aligned
    same = len(source.shape) == len(made.shape) and _order(source) == _order(made)
    return same and _has_gaps(source) == _has_gaps(made)


def _order(value: Value) -> tuple[int, ...]:
    """Return the dimensions from the outermost in memory to the innermost; those of length 1 do not count."""
    real = [at for at, length in enumerate(value.shape) if length > 1]
    if len(value.strides) != len(value.shape):
        return ()
    ordered = sorted(real, key=lambda at: (-value.strides[at], at))
    ranks = {at: rank for rank, at in enumerate(real)}
    found = tuple(ranks[at] for at in ordered)
    return () if found == tuple(range(len(found))) else found


def _is_format(value: Value) -> bool:
    return len(value.shape) in (4, 5) and _format(value) is not None


def _format(value: Value) -> str | None:
    dims = tuple(range(len(value.shape)))
    strides = value.strides
    if not strides or len(strides) != len(dims):
        return None
    order = tuple(sorted(dims, key=lambda at: (-strides[at], at)))
    if order == dims:
        return "contiguous"
    return "channels_last" if order == (0, *dims[2:], 1) else None


def _tell(value: Value, aspect: Aspect) -> str:
    if aspect == "memory_format":
        return _format(value) or "?"
    shape = "x".join(map(str, value.shape))
    is_dense = not _order(value) and not _has_gaps(value)
    return f"{shape}, {'contiguous' if is_dense else 'strides ' + ','.join(map(str, value.strides))}"


def _has_gaps(value: Value) -> bool:
    """Return whether a tensor leaves out memory between its elements, as a part of a larger one does."""
    if len(value.strides) != len(value.shape) or 0 in value.strides or 0 in value.shape:
        return False
    span = 1 + sum((length - 1) * stride for length, stride in zip(value.shape, value.strides, strict=True))
    return span > math.prod(value.shape)
