"""The signature of a tensor, and the comparison of two signatures.

Counts, extremes and power sums do not change under permute, reshape, copy or a change of float type; the sketch changes
with the order of elements, and so tells tensors of one distribution apart. `compare` decides whether two
signatures mean the same tensor. Matching also searches for the nearest of many tensors, with repetition and padding
ignored; that search uses another distance (`matching.features`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# The length of a sketch. Element i of the tensor, in its logical (row-major) order, is multiplied by a random sign and
# added to the sum i % SKETCH. The sums are divided by the norm of the tensor (the root of `sum_x2`) and stored as whole
# multiples of SKETCH_STEP. Elements that are not finite count as 0; dimensions of stride 0 are left out. The distance
# of two sketches estimates the distance of the tensors as a share of their norm: unrelated tensors are about 1.4 apart.
# The sign is negative if bit 0 of mix(i % SIGN_PERIOD) differs from bit i % SKETCH of
# mix(SIGN_PERIOD + i // SIGN_PERIOD).
SKETCH = 16
SKETCH_STEP = 2.0**-16
SIGN_PERIOD = 32768
# The absolute values in a sketch are less: by the Cauchy-Schwarz inequality, up to 2**34 elements.
SKETCH_LIMIT = 2**31


def mix(number: int) -> int:
    """Return 32 random bits for a whole number below 2**32: the last steps of MurmurHash3."""
    number ^= number >> 16
    number = number * 0x85EBCA6B & 0xFFFFFFFF
    number ^= number >> 13
    number = number * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16


@dataclass(frozen=True, slots=True)
class Signature:
    """Counts, extremes and power sums of a tensor's elements.

    Sums run over the finite elements in double precision and add up under concatenation, as the
    counts do; `low` and `high` are the extremes of the finite elements (None without any).
    """

    count: int
    nans: int
    positive_infs: int
    negative_infs: int
    zeros: int
    integral: bool
    """Every finite element is a whole number."""
    low: float | None
    high: float | None
    sum_x: float
    sum_abs: float
    sum_x2: float
    sum_x3: float
    sum_x4: float
    sketch: tuple[int, ...] | None = None
    """Signed sums of `SKETCH` groups of elements over the norm, in units of `SKETCH_STEP`; None if it is not known."""

    @property
    def constant(self) -> bool:
        """Whether all elements are one finite number."""
        return self.low is not None and self.low == self.high and self.finite

    @property
    def finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not (self.nans or self.positive_infs or self.negative_infs)

    @property
    def overflows(self) -> bool:
        """Whether the sum of squares exceeds the largest double."""
        return math.isinf(self.sum_x2)

    def repeated(self, times: int) -> Signature:
        """Return the signature of `times` copies."""
        if times == 1:
            return self
        # The sketch stays that of one copy: the copies may lie one after the other or interleaved.
        counts = ("count", "nans", "positive_infs", "negative_infs", "zeros")
        sums = ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
        return replace(self, **{name: getattr(self, name) * times for name in (*counts, *sums)})


def compare(a: Signature, b: Signature, *, tolerance: float, extremes: bool = False) -> bool:
    """Return whether two signatures mean the same tensor: `difference` is known and at most `tolerance`."""
    found = difference(a, b, extremes=extremes)
    return found is not None and found <= tolerance


def difference(a: Signature | None, b: Signature | None, *, extremes: bool = False) -> float | None:
    """Return how much two tensors differ, as a share of their norm; None for unknown or different counts of elements.

    It is 1 where the counts of NaN or infinite elements differ. Sums beyond the largest double are left out: the other
    sums decide. With `extremes`, the lowest and highest elements count too, as a share of the root mean square: use it
    where each element matters, not where single elements may deviate.
    """
    if a is None or b is None or a.count != b.count:
        return None
    if (a.nans, a.positive_infs, a.negative_infs) != (b.nans, b.positive_infs, b.negative_infs):
        return 1.0
    if not a.sum_abs or not b.sum_abs:
        return 0.0 if a.sum_abs == b.sum_abs else 1.0
    sum_abs, sum_x2 = max(a.sum_abs, b.sum_abs), max(a.sum_x2, b.sum_x2)
    shares = [
        # The norm is the root of this sum, so its relative error is half as large.
        _share(a.sum_x2 - b.sum_x2, sum_x2) / 2,
        _share(a.sum_abs - b.sum_abs, sum_abs),
        _share(a.sum_x - b.sum_x, sum_abs),
    ]
    if extremes:
        size = math.sqrt(max(0.0, sum_x2) / max(1, a.count))
        shares += [_share((x or 0.0) - (y or 0.0), size) for x, y in ((a.low, b.low), (a.high, b.high))]
    return max(shares)


def _share(gap: float, size: float) -> float:
    if gap == 0.0 or not math.isfinite(gap) or math.isinf(size):
        return 0.0
    return abs(gap) / size if size > 0.0 else 1.0
