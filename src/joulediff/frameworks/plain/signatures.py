"""Signatures of the columns of an output, as recordings store them.

Texts are exact: they are signed by their digest, so that texts which differ in one character are far apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from joulediff.frameworks.plain.output_tree import Column
from joulediff.frameworks.sketch import SignedSums, to_sketch
from joulediff.model.run import Run, Value
from joulediff.model.signature import Signature

# Elements that are converted to doubles at a time.
BLOCK = 1 << 20
TEXT = "text"
# The digits of a digest are moved around zero: unrelated ones have unrelated sums.
_MIDDLE = 127.5


@dataclass(frozen=True, slots=True)
class Signed:
    """A column with its signature; None for one that cannot be compared."""

    shape: tuple[int, ...]
    dtype: str
    signature: Signature | None


def sign_columns(columns: Mapping[str, Column]) -> dict[str, Signed]:
    """Return the signature of each column; texts have one of their own beside the numbers."""
    found: dict[str, Signed] = {}
    for name, column in columns.items():
        if column.unknown is not None:
            found[name] = Signed((), column.unknown, None)
            continue
        if column.numbers:
            count = sum(each.size for each in column.numbers)
            shape = (count,) if column.shape is None else column.shape
            dtypes = dict.fromkeys(str(each.dtype) for each in column.numbers)
            found[name] = Signed(shape, "+".join(dtypes), sign_numbers(column.numbers))
        if column.texts is not None:
            digits = np.frombuffer(column.texts.digest(), dtype=np.uint8) - _MIDDLE
            found[f"{name}.texts" if column.numbers else name] = Signed(digits.shape, TEXT, sign_numbers([digits]))
    return found


def sign_numbers(arrays: Iterable[np.ndarray]) -> Signature:
    """Return the signature of arrays, one after the other; a complex number is two."""
    counts = np.zeros(5, dtype=np.int64)
    sums, signed, first = np.zeros(5), SignedSums(), 0
    low, high, is_whole = np.inf, -np.inf, True
    with np.errstate(over="ignore", invalid="ignore"):
        for x in _blocks(arrays):
            finite = np.isfinite(x)
            counts += (x.size, np.isnan(x).sum(), (x == np.inf).sum(), (x == -np.inf).sum(), (x == 0).sum())
            kept = np.where(finite, x, 0.0)
            squares = kept * kept
            sums += (kept.sum(), np.abs(kept).sum(), squares.sum(), (squares * kept).sum(), (squares * squares).sum())
            signed.add(kept, first)
            first += x.size
            if finite.any():
                low, high = min(low, x[finite].min()), max(high, x[finite].max())
                is_whole = is_whole and bool((kept == np.rint(kept)).all())
    has_finite = low <= high
    count, nans, positive_infs, negative_infs, zeros = map(int, counts)
    sum_x, sum_abs, sum_x2, sum_x3, sum_x4 = map(float, sums)
    return Signature(
        count,
        nans,
        positive_infs,
        negative_infs,
        zeros,
        is_whole,
        float(low) if has_finite else None,
        float(high) if has_finite else None,
        sum_x,
        sum_abs,
        sum_x2,
        sum_x3,
        sum_x4,
        sketch=to_sketch(signed.total(), sum_x2),
    )


def _blocks(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the elements as doubles; single numbers are put together."""
    singles: list[np.ndarray] = []
    for array in arrays:
        if array.ndim == 0 and len(singles) < BLOCK:
            singles.append(array)
            continue
        yield from _doubles(singles)
        singles = []
        flat = array.ravel()
        for begin in range(0, flat.size, BLOCK):
            yield from _doubles([flat[begin : begin + BLOCK]])
    yield from _doubles(singles)


def _doubles(arrays: list[np.ndarray]) -> Iterator[np.ndarray]:
    if not arrays:
        return
    joined = np.hstack(arrays) if len(arrays) > 1 else np.atleast_1d(arrays[0])
    if joined.dtype.kind == "c":
        joined = np.stack([joined.real, joined.imag], axis=-1).ravel()
    yield np.ascontiguousarray(joined, dtype=np.float64)


def add_outputs(run: Run, outputs: Mapping[str, Signed]) -> tuple[tuple[Value, ...], tuple[Signature, ...]]:
    """Return the values and signatures of a run with outputs added, as results that no operator made."""
    values, signatures = list(run.values), list(run.signatures)
    storage = max((value.storage for value in values), default=-1)
    for name, each in outputs.items():
        number = None
        if each.signature is not None:
            number = len(signatures)
            signatures.append(each.signature)
        storage += 1
        values.append(
            Value(
                id=len(values),
                shape=each.shape,
                strides=_strides(each.shape),
                offset=0,
                dtype=each.dtype,
                device="cpu",
                storage=storage,
                kind="produced",
                name=name,
                producer=None,
                previous=None,
                writers=(),
                signature=number,
                repeats=1,
            )
        )
    return tuple(values), tuple(signatures)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(1, size)
    return tuple(reversed(found))
