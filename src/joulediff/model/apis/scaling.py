"""The record of a step that was measured at several input sizes, and how its costs grow with the size.

An order of growth is stored only as far as the intervals of the measurements settle it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from joulediff.model.display import Displayed
from joulediff.model.energy import Amount, Energy, scale
from joulediff.model.measurement import Measurement

SCHEMA = "joulediff.scale/1"

Quantity = Literal["energy", "net energy", "time", "power"]
Order = Literal["1", "log n", "n", "n log n", "n^1.5", "n^2", "n^3"]


@dataclass(frozen=True, slots=True)
class SizePoint:
    """The measurement of the step at one size."""

    size: int
    measured: Measurement

    @property
    def energy_per_unit(self) -> Energy | None:
        """Return the energy of the step divided by the size."""
        return scale(self.measured.energy, 1 / self.size)


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """A fit of `constant + factor * size ** exponent`, whose growing part is zero if the exponent is None."""

    constant: Amount
    """In joules, seconds or watts."""
    factor: float
    exponent: Amount | None
    misfit_share: float
    """How far the measurements are from the fit: the root mean square, as a share."""

    def value_at(self, size: float) -> float:
        """Return the fitted value at a size."""
        if self.exponent is None:
            return self.constant.value
        return float(self.constant.value + self.factor * size**self.exponent.value)

    @property
    def equal_at(self) -> float | None:
        """Return the size at which the growing part is as large as the constant; None without a growing part."""
        if self.exponent is None or not self.factor > 0:
            return None
        return float((max(self.constant.value, 0.0) / self.factor) ** (1 / self.exponent.value))


@dataclass(frozen=True, slots=True)
class Growth:
    """How one quantity grows with the size."""

    quantity: Quantity
    domain: str | None
    """None for the whole step: its time, or the sum over the counted domains."""
    law: PowerLaw | None
    orders: tuple[Order, ...]
    """The growth is not slower than the first and not faster than the last; one alone is the order. Empty if the
    measurements do not settle it."""
    reason: str | None = None
    """Why there is no order."""


@dataclass(frozen=True, slots=True)
class SeriesEnd:
    """Why a series ended before its last size."""

    size: int
    """The size that was not measured to the end."""
    why: str
    out_of_memory: bool


@dataclass(frozen=True, kw_only=True)
class Scaling(Displayed):
    """A step that was measured at several sizes."""

    schema: str = SCHEMA
    label: str
    created: str
    """UTC, ISO 8601."""
    tool: str
    """The version of joulediff that measured it."""
    points: tuple[SizePoint, ...]
    """In the order of their sizes."""
    again: SizePoint | None = None
    """The first size once more, after the last one: it shows drift."""
    growths: tuple[Growth, ...] = ()
    ended: SeriesEnd | None = None
    """None if all sizes were measured."""
    warnings: tuple[str, ...] = ()

    @property
    def trustworthy(self) -> bool:
        """Return whether all sizes were measured, each of them trustworthy, without drift."""
        return self.ended is None and not self.warnings and all(each.measured.trustworthy for each in self.points)

    def growth(self, quantity: Quantity, domain: str | None = None) -> Growth | None:
        """Return the growth of a quantity, of the whole step or in one domain; None if it was not measured."""
        return next((each for each in self.growths if (each.quantity, each.domain) == (quantity, domain)), None)

    def __repr__(self) -> str:
        sizes = f"{len(self.points)} sizes" if len(self.points) != 1 else "1 size"
        energy = self.growth("energy")
        order = " .. ".join(dict.fromkeys((energy.orders[0], energy.orders[-1]))) if energy and energy.orders else "?"
        return f"<Scaling {self.label}: {sizes}, energy grows as {order}>"
