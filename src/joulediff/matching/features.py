"""What a tensor looks like, whatever its layout, float type, padding by zeros or repetition.

Power sums, each in units of a typical magnitude (the fourth sum over the second, under the root) and of how many
elements have it. Zeros count for nothing in either, nor do elements so small that a float type or another order of
computing makes zeros of them; repetition multiplies all sums alike. Nothing is relative to the mean, so tensors with
a mean near zero are told apart as well as others. Distances are relative errors: a change of float type moves features
by about its rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from joulediff.matching.graph import Graph
from joulediff.model.run import Run
from joulediff.model.signature import Signature, compare

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Magnitude, mean, mean magnitude, skewness, lowest, highest. Higher moments and extremes change more for the same error
# of the elements, so they weigh less.
WEIGHTS = np.array([1.0, 1.0, 1.0, 0.5, 0.2, 0.2])
# Sums of the same elements in another order, in double precision.
SAME = 1e-9
# Sums of whole numbers are exact; beyond 2**53 they have the rounding of a double.
EXACT_SUM = 1e-12
# Fewer elements than this say too little to tell a tensor by.
FEW = 8
# Unit roundoff of float types, and of what is computed with them.
ROUNDING = {"float64": 1e-15, "float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}
# Matrix products and convolutions of float32 may run in TF32 on a GPU.
TF32 = 2**-11
COARSE = 2**-4
# Where the largest magnitude makes up this share of the power, as in scores with a mask of -1e4, the rest is not seen.
DOMINATED = 0.98
# Denormals and numbers whose powers are beyond a double say nothing.
_LEAST, _MOST = 1e-280, 1e280


@dataclass(frozen=True, slots=True)
class Features:
    """The values of a run, one row each."""

    rows: Floats
    """Weighted features; NaN for what cannot be compared."""
    strong: Bools
    """Evidence enough to be recognised by: not constant, not whole numbers, not few, finite."""
    known: Bools
    """Finite and not constant: equal ones are equal where something else says so too."""
    sizes: Floats
    """How many elements have about the typical magnitude."""
    counts: Floats
    sums: Floats
    """Count of nonzeros and power sums, which add up under concatenation."""
    rounding: Floats
    """Relative error that the coarsest float type on the way to a value makes."""


def find_features(graph: Graph) -> Features:
    """Return the features of every value of a run."""
    run = graph.run
    table = _table(run)
    places = np.array([-1 if value.signature is None else value.signature for value in run.values], dtype=np.int64)
    rows = table[places] if len(places) else table[:0]
    repeats = np.array([value.repeats for value in run.values], dtype=np.float64)
    zeros, finite, integral, low, high = rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4], rows[:, 5]
    counts, sums = rows[:, 0] * repeats, rows[:, 6:] * repeats[:, None]
    nonzeros = (rows[:, 0] - zeros) * repeats
    with np.errstate(all="ignore"):
        found, sizes = _normalise(sums, low, high)
        spread = nonzeros / sizes
        top = sums[:, 4] / (sums[:, 2] * np.maximum(np.abs(low), np.abs(high)) ** 2)
    known = (finite > 0) & np.isfinite(found).all(axis=1) & (spread > 1 + SAME) & (nonzeros > 0)
    whole = np.array([not value.dtype.startswith(("float", "bfloat", "complex")) for value in run.values], dtype=bool)
    strong = known & (integral == 0) & ~whole & (nonzeros >= FEW) & (top < DOMINATED)
    found[~known] = np.nan
    adding = np.concatenate([nonzeros[:, None], sums], axis=1)
    return Features(found * WEIGHTS, strong, known, sizes, counts, adding, _roundings(graph))


def are_multiples(a: Floats, b: Floats, share: Floats) -> Bools:
    """Return where one size is a whole number of times the other but for a share, as where a tensor is repeated."""
    ratio = a / b
    ratio = np.maximum(ratio, 1 / ratio)
    return np.asarray(np.abs(ratio - np.round(ratio)) <= share * ratio)


def is_same_weak_value(a: Signature, b: Signature, *, tolerance: float) -> bool:
    """Return whether two values that are not strong are equal.

    Their features say too little, so their signatures are compared, extremes included. Whole numbers (indices, masks)
    have no rounding errors and must be equal exactly.
    """
    is_whole = a.integral or b.integral
    return compare(a, b, tolerance=EXACT_SUM if is_whole else max(tolerance, EXACT_SUM), extremes=True)


def _table(run: Run) -> Floats:
    """Return a row for each signature, and a last one that says nothing."""
    rows = [
        (
            s.count,
            s.zeros,
            s.finite and s.low is not None,
            s.integral,
            0.0 if s.low is None else s.low,
            0.0 if s.high is None else s.high,
            s.sum_x,
            s.sum_abs,
            s.sum_x2,
            s.sum_x3,
            s.sum_x4,
        )
        for s in run.signatures
    ]
    return np.array([*rows, (0,) * 11], dtype=np.float64)


def _normalise(sums: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return features, and how many elements have about the typical magnitude."""
    first, size, square, third, fourth = sums.T
    square = np.where((square > _LEAST) & (square < _MOST) & (fourth > _LEAST) & (fourth < _MOST), square, np.nan)
    typical, count = np.sqrt(fourth / square), square**2 / fourth
    columns = (
        np.log(typical),
        first / (count * typical),
        size / (count * typical),
        np.arcsinh(third / (count * typical**3)),
        np.arcsinh(np.minimum(low, 0.0) / typical),
        np.arcsinh(np.maximum(high, 0.0) / typical),
    )
    return np.stack(columns, axis=1), count


def _roundings(graph: Graph) -> Floats:
    kinds = {(value.dtype, value.device) for value in graph.run.values}
    own = {kind: _rounding(*kind) for kind in kinds}
    found = [own[value.dtype, value.device] for value in graph.run.values]
    for reads, makes in zip(graph.reads, graph.makes, strict=True):
        coarsest = max((found[value] for value in reads), default=0.0)
        for value in makes:
            if found[value] < coarsest:
                found[value] = coarsest
    return np.array(found, dtype=np.float64)


def _rounding(dtype: str, device: str) -> float:
    if dtype == "float32" and device != "cpu":
        return TF32
    return ROUNDING.get(dtype, COARSE if dtype.startswith("float8") else 0.0)
