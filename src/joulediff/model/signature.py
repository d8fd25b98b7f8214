"""What stays the same of a tensor under permute, reshape, copy and a change of float type."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Signature:
    """What stays the same of a tensor under permute, reshape, copy and a change of float type.

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

    @property
    def constant(self) -> bool:
        """Whether all elements are one finite number."""
        return self.low is not None and self.low == self.high and self.finite

    @property
    def finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not (self.nans or self.positive_infs or self.negative_infs)

    def repeated(self, times: int) -> Signature:
        """Return the signature of `times` copies."""
        if times == 1:
            return self
        counts = ("count", "nans", "positive_infs", "negative_infs", "zeros")
        sums = ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
        return replace(self, **{name: getattr(self, name) * times for name in (*counts, *sums)})
