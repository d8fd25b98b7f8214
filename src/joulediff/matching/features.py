"""Features of tensors: those that do not depend on layout, float type, zero padding or repetition, and sketches.

A feature is a power sum, divided by a typical magnitude (the root of the fourth sum over the second) and by the number
of elements of that magnitude. Zeros, and elements so small that rounding makes them zero, add nothing to either;
repetition multiplies all sums by the same factor. No feature is relative to the mean, so tensors with a mean near zero
have different features too. The distance of two rows is a relative error: a change of float type moves features by
about its rounding error.

A sketch depends on the order of elements, and on little else: tensors of one distribution have different sketches. With
the logarithm of the norm as one more column, the distance of two sketches is the distance of the tensors as a share
of their norm.

This is the second comparison of tensors beside `model.signature.compare`. It is needed to find the nearest of many
tensors with a k-d tree, and to match tensors of different sizes, where one is padded or repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from joulediff.frameworks.sketch import count_signs
from joulediff.matching.graph import Graph
from joulediff.model.run import Run
from joulediff.model.signature import SKETCH, SKETCH_STEP, Signature, compare

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Magnitude, mean, mean magnitude, skewness, lowest, highest. The same error of the elements changes higher moments and
# extremes more, so these have smaller weights.
WEIGHTS = np.array([1.0, 1.0, 1.0, 0.5, 0.2, 0.2])
# Relative difference of sums of the same elements in another order, in double precision.
SAME = 1e-9
# Sums of whole numbers are exact; beyond 2**53 they have the rounding of a double.
EXACT_SUM = 1e-12
# A tensor with fewer nonzero elements cannot be recognised by its features.
FEW = 8
# Relative rounding error of values computed in each float type.
ROUNDING = {"float64": 1e-15, "float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}
# Matrix products and convolutions of float32 may run in TF32 on a GPU.
TF32 = 2**-11
COARSE = 2**-4
# If the elements of the largest magnitude make up this share of the power sums, as in attention scores with a mask of
# -1e4, the features do not show the other elements.
DOMINATED = 0.98
# Sketches of the same elements differ by at most this, because they are stored in steps.
SAME_SKETCH = 4 * SKETCH**0.5 * SKETCH_STEP
# A tensor whose squares without the mean are less than this share of its squares is constant.
CONSTANT = 1e-7
# The mean of larger tensors is not taken out: a file may claim any number of elements.
_MOST_SIGNS = 2**36
# Sums of denormals, and powers near the limits of a double, are not compared.
_LEAST, _MOST = 1e-280, 1e280


@dataclass(frozen=True, slots=True)
class Features:
    """The features of the values of a run; each array has one entry, or one row, for each value."""

    rows: Floats
    """Weighted features; NaN for a value that cannot be compared."""
    strong: Bools
    """Whether the features suffice to recognise it: finite, not constant, not whole numbers, not few elements."""
    known: Bools
    """Whether it is finite and not constant: features can confirm an equality that other facts suggest."""
    sizes: Floats
    """Number of elements that have about the typical magnitude."""
    counts: Floats
    sums: Floats
    """Count of nonzero elements and power sums; both add up under concatenation."""
    sketches: Floats
    """The sketch, and the logarithm of the norm; NaN for a value without a sketch."""
    centred: Floats
    """The sketch of the tensor without its mean, over the norm of that: all positive tensors have similar sketches."""
    sketched: Floats
    """Number of elements that the sketch was made of: each once, if they are repeated."""
    rounding: Floats
    """Relative rounding error of the coarsest float type among the values it was computed from."""


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
    sketches, centred = _sketches(run)
    return Features(
        found * WEIGHTS,
        strong,
        known,
        sizes,
        counts,
        adding,
        sketches[places],
        centred[places],
        rows[:, 0],
        _roundings(graph),
    )


def sketch_distance(a: Floats, b: Floats) -> Floats:
    """Return the distances between sketches, row by row; NaN where one is unknown."""
    return np.asarray(np.sqrt(((a - b) ** 2).sum(axis=-1)))


def are_multiples(a: Floats, b: Floats, tolerance: Floats) -> Bools:
    """Return where one size is a whole multiple of the other within a relative tolerance, as for a repeated tensor."""
    ratio = a / b
    ratio = np.maximum(ratio, 1 / ratio)
    return np.asarray(np.abs(ratio - np.round(ratio)) <= tolerance * ratio)


def is_same_weak_value(a: Signature, b: Signature, *, tolerance: float) -> bool:
    """Return whether two values that are not strong are equal.

    Features are not enough to recognise them, so the signatures are compared, extremes included. Whole numbers
    (indices, masks) have no rounding errors and must be equal exactly.
    """
    is_whole = a.integral or b.integral
    return compare(a, b, tolerance=EXACT_SUM if is_whole else max(tolerance, EXACT_SUM), extremes=True)


def _table(run: Run) -> Floats:
    """Return a row for each signature, and a last one for values without a signature."""
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


def _sketches(run: Run) -> tuple[Floats, Floats]:
    """Return sketches and centred sketches, a row for each signature, and a last one for values without one."""
    found = np.full((len(run.signatures) + 1, SKETCH + 1), np.nan)
    centred = np.full((len(run.signatures) + 1, SKETCH), np.nan)
    has = [at for at, each in enumerate(run.signatures) if each.sketch is not None and each.sum_x2 > 0.0]
    if not has:
        return found, centred
    signatures = [run.signatures[at] for at in has]
    found[has, :SKETCH] = np.array([each.sketch for each in signatures], dtype=np.float64) * SKETCH_STEP
    squares = np.array([each.sum_x2 for each in signatures])
    found[has, SKETCH] = 0.5 * np.log(squares)
    means = np.array([each.sum_x / each.count for each in signatures])
    unknown = np.full(SKETCH, np.nan)
    ones = np.array([count_signs(each.count) if each.count <= _MOST_SIGNS else unknown for each in signatures])
    counts = np.array([each.count for each in signatures], dtype=np.float64)
    with np.errstate(all="ignore"):
        left = squares - counts * means**2
        spread = np.sqrt(np.where(left > CONSTANT * squares, left, np.nan))
        shift = found[has, :SKETCH] * np.sqrt(squares)[:, None] - means[:, None] * ones
        centred[has] = shift / spread[:, None]
    return found, centred


def _normalise(sums: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the features, and the number of elements that have about the typical magnitude."""
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
    own = {kind: rounding_of(*kind) for kind in kinds}
    found = [own[value.dtype, value.device] for value in graph.run.values]
    for reads, makes in zip(graph.reads, graph.makes, strict=True):
        coarsest = max((found[value] for value in reads), default=0.0)
        for value in makes:
            if found[value] < coarsest:
                found[value] = coarsest
    return np.array(found, dtype=np.float64)


def rounding_of(dtype: str, device: str) -> float:
    """Return the relative rounding error of values that are computed in a type on a device; 0 for whole numbers."""
    if dtype == "float32" and device != "cpu":
        return TF32
    return ROUNDING.get(dtype, COARSE if dtype.startswith("float8") else 0.0)
