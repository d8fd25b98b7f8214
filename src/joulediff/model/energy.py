"""Energy: joules with their interval and source, and all arithmetic and comparisons of such values.

Energy crosses borders as `Energy`, never as a bare float. The interval holds the value with 95 % confidence, as far as
repeats and the resolution of the meter show. A file may hold any number: operations return None for a result that is
not finite, and the unknown (None) stays unknown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from joulediff.model.pair import SideName
from joulediff.model.units import format_energy, format_share

Source = Literal["metered", "replayed", "attributed", "estimated"]


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules with their interval, and how they were found."""

    joules: float
    low: float
    high: float
    source: Source

    def __post_init__(self) -> None:
        if not self.low <= self.joules <= self.high:
            raise ValueError(f"energy {self.joules} J outside its interval {self.low}..{self.high} J")

    def __repr__(self) -> str:
        return f"<Energy {self.interval_text}, {self.source}>"

    @property
    def interval_text(self) -> str:
        """Return the value with the half width of its interval: `32.10 mJ ± 0.9%`."""
        return f"{format_energy(self.joules)} ± {format_share(self.half_width_share)}"

    @property
    def below_j(self) -> float:
        """Return how far the interval reaches below the value."""
        return self.joules - self.low

    @property
    def above_j(self) -> float:
        """Return how far the interval reaches above the value."""
        return self.high - self.joules

    @property
    def half_j(self) -> float:
        """Return the larger half of the interval."""
        return max(self.above_j, self.below_j)

    @property
    def width_j(self) -> float:
        """Return the width of the interval."""
        return self.high - self.low

    @property
    def is_zero(self) -> bool:
        """Return whether the value is exactly zero."""
        return self.joules == 0.0

    @property
    def is_surely_positive(self) -> bool:
        """Return whether the whole interval is above zero."""
        return self.low > 0.0

    @property
    def half_width_share(self) -> float:
        """Return the larger half of the interval as a share of the value."""
        return self.half_j / abs(self.joules) if self.joules else float("inf")

    def symmetric(self) -> Energy:
        """Return the same energy with the larger half of its interval on both sides."""
        return Energy(self.joules, self.joules - self.half_j, self.joules + self.half_j, self.source)

    def not_negative(self) -> Energy:
        """Return the same energy if it is 0 J or more, else 0 J; its interval does not reach below 0 J either."""
        joules = max(0.0, self.joules)
        return Energy(joules, max(0.0, joules - self.below_j), joules + self.above_j, self.source)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One energy over another, with its interval."""

    value: float
    low: float
    high: float

    @property
    def may_be_one(self) -> bool:
        """Return whether the two energies may be equal: 1 is within the interval."""
        return self.low <= 1.0 <= self.high


# From the strongest to the weakest, as the type names them.
_SOURCES: tuple[Source, ...] = get_args(Source)
# Stands for an end of a ratio that is not known.
_MOST_LOG = math.log(1e6)


def to_energy(joules: float, low: float, high: float, source: Source) -> Energy | None:
    """Return an energy, its interval extended to hold the value; None if a number is not finite."""
    if not (math.isfinite(joules) and math.isfinite(low) and math.isfinite(high)):
        return None
    return Energy(joules, min(low, joules), max(high, joules), source)


def joules_of(energy: Energy | None) -> float:
    """Return joules to sum or to compare: zero if there is no energy."""
    return 0.0 if energy is None else energy.joules


def around(joules: float, half_j: float, source: Source) -> Energy | None:
    """Return an energy with a symmetric interval."""
    return to_energy(joules, joules - half_j, joules + half_j, source)


def add(parts: Iterable[tuple[Hashable, Energy]]) -> Energy | None:
    """Return the sum of energies, each given with a key of its measurement; None without parts.

    Energies of one measurement err together: their errors add up. Errors of different measurements are independent
    and add in quadrature.
    """
    groups: defaultdict[Hashable, list[Energy]] = defaultdict(list)
    for key, energy in parts:
        groups[key].append(energy)
    known = [energy for group in groups.values() for energy in group]
    if not known:
        return None
    joules = sum([e.joules for e in known])
    # Without the properties: an offline diff adds the energies of many thousand kernels.
    below_j = math.hypot(*(sum([e.joules - e.low for e in group]) for group in groups.values()))
    above_j = math.hypot(*(sum([e.high - e.joules for e in group]) for group in groups.values()))
    return to_energy(joules, joules - below_j, joules + above_j, weakest(known))


def add_independent(parts: Iterable[Energy]) -> Energy | None:
    """Return the sum of energies whose errors are independent; None without parts."""
    return add(enumerate(parts))


def add_known(parts: Iterable[Energy | None]) -> Energy | None:
    """Return the sum of the energies that are known, whose errors are independent; None if none is."""
    return add_independent(part for part in parts if part is not None)


def add_common(parts: Iterable[Energy]) -> Energy | None:
    """Return the sum of energies that err together; None without parts."""
    return add((None, part) for part in parts)


def subtract(whole: Energy, parts: Sequence[Energy], *, error: float = 0.0) -> Energy | None:
    """Return the energy that parts leave of a whole; all errors are independent.

    Each energy has a further error of the share `error` of its value.
    """
    joules = whole.joules - sum(part.joules for part in parts)
    errors_j = [error * each.joules for each in (whole, *parts)]
    below_j = math.hypot(whole.below_j, *(part.above_j for part in parts), *errors_j)
    above_j = math.hypot(whole.above_j, *(part.below_j for part in parts), *errors_j)
    return to_energy(joules, joules - below_j, joules + above_j, weakest([*parts, whole]))


def subtract_common(whole: Energy, part: Energy | None) -> Energy | None:
    """Return the energy that a part leaves of a whole, with the source of the part; their errors add up."""
    if part is None:
        return None
    return to_energy(whole.joules - part.joules, whole.low - part.high, whole.high - part.low, part.source)


def remainder(whole: Energy | None, parts: Sequence[Energy | None]) -> Energy | None:
    """Return the energy of a whole that no known part holds, with a symmetric interval; it may be negative."""
    known = [part for part in parts if part is not None]
    if whole is None or not known:
        return whole
    left_j = whole.joules - sum(part.joules for part in known)
    return around(left_j, math.hypot(whole.width_j, *(part.width_j for part in known)) / 2, whole.source)


def shift(energy: Energy | None, joules: float) -> Energy | None:
    """Return an energy with joules added that are known exactly; its interval keeps its width."""
    if energy is None:
        return None
    moved_j = energy.joules + joules
    return to_energy(moved_j, moved_j - energy.below_j, moved_j + energy.above_j, energy.source)


def scale(energy: Energy | None, factor: float, *, error: float = 0.0) -> Energy | None:
    """Return a multiple of an energy; the factor is known to within `error`, independently of the energy."""
    if energy is None:
        return None
    scaled = to_energy(energy.joules * factor, energy.low * factor, energy.high * factor, energy.source)
    return widen(scaled, error * energy.joules) if error else scaled


def widen(energy: Energy | None, below_j: float, above_j: float | None = None) -> Energy | None:
    """Return an energy with a further independent error of `below_j` and `above_j`, by default the same."""
    if energy is None:
        return None
    low = energy.joules - math.hypot(energy.below_j, below_j)
    high = energy.joules + math.hypot(energy.above_j, below_j if above_j is None else above_j)
    return to_energy(energy.joules, low, high, energy.source)


def at_most(energy: Energy | None, limit_j: float) -> Energy | None:
    """Return an energy whose value and interval do not exceed a limit."""
    if energy is None:
        return None
    joules, low, high = (min(each, limit_j) for each in (energy.joules, energy.low, energy.high))
    return to_energy(joules, low, high, energy.source)


def mean(first: Energy, second: Energy) -> Energy | None:
    """Return the mean of two measurements of the same work.

    Half of their difference is its standard deviation, as far as two values show, so the 95 % interval reaches as far
    as the values differ.
    """
    both = scale(add_independent((first, second)), 0.5)
    return widen(both, abs(first.joules - second.joules))


def lowest(energies: Sequence[Energy]) -> Energy:
    """Return the lowest of several measurements of the same work, with the narrowest interval among them."""
    least = min(energies, key=lambda each: each.joules)
    half_j = min(each.width_j / 2 for each in energies)
    return Energy(least.joules, least.joules - half_j, least.joules + half_j, least.source)


def weakest(energies: Iterable[Energy]) -> Source:
    """Return the weakest source of some energies, which is the source of their sum."""
    return max({energy.source for energy in energies}, key=_SOURCES.index)


def difference_j(a: Energy | None, b: Energy | None) -> float:
    """Return how many joules `a` is above `b`; None means no work, which costs nothing."""
    return joules_of(a) - joules_of(b)


def costlier_side(a: Energy | None, b: Energy | None) -> SideName:
    """Return the side with more energy, `a` if both have the same."""
    return "a" if difference_j(a, b) >= 0 else "b"


def ratio(a: Energy | None, b: Energy | None, *, error: float = 0.0) -> Ratio | None:
    """Return `a` over `b`; None if one is unknown or not positive.

    Each energy has a further error of the share `error` of its value. The interval is symmetric in the logarithm: half
    and twice are equally far from one.
    """
    if a is None or b is None or not (a.joules > 0 and b.joules > 0):
        return None
    below = math.hypot(_log_ratio(a.joules, a.low), _log_ratio(b.high, b.joules), error, error)
    above = math.hypot(_log_ratio(a.high, a.joules), _log_ratio(b.joules, b.low), error, error)
    value = a.joules / b.joules
    return Ratio(value, value * math.exp(-below), value * math.exp(min(above, _MOST_LOG)))


def _log_ratio(more: float, less: float) -> float:
    """Return the logarithm of a ratio; the low end of an energy may be zero."""
    return math.log(more / less) if more > 0 and less > 0 else _MOST_LOG


def higher_over_lower(a: Energy | None, b: Energy | None) -> float | None:
    """Return the ratio of the higher energy to the lower one; None if the lower one is not positive."""
    lower_j, higher_j = sorted((joules_of(a), joules_of(b)))
    return higher_j / lower_j if lower_j > 0 else None


def share_of(part_j: float, whole: Energy | None) -> float | None:
    """Return joules as a share of an energy; None if the energy is unknown or not positive."""
    return part_j / whole.joules if whole is not None and whole.joules > 0 else None


def saved_share(before: Energy | None, after: Energy | None) -> float | None:
    """Return the share of an energy that a change saves; None if one is unknown or there was nothing to save."""
    if before is None or after is None or not before.joules > 0:
        return None
    return 1 - after.joules / before.joules


def is_more_than(joules: float, share: float, whole: Energy | None) -> bool:
    """Return whether joules exceed a share of an energy; False if the energy is unknown."""
    return whole is not None and joules > share * whole.joules


def is_at_most(energy: Energy | None, share: float, other: Energy | None) -> bool:
    """Return whether an energy is at most this share of another; False if one is unknown."""
    return energy is not None and other is not None and energy.joules <= share * other.joules


def overlap(a: Energy | None, b: Energy | None) -> bool:
    """Return whether the intervals of two energies overlap; an unknown one overlaps with every other."""
    return a is None or b is None or (a.low <= b.high and b.low <= a.high)


def agree(a: Energy | None, b: Energy | None) -> bool:
    """Return whether one of two energies is within the interval of the other; None means no work, exactly zero."""
    if a is None or b is None:
        only = a or b
        return only is None or not only.is_surely_positive
    return b.low <= a.joules <= b.high or a.low <= b.joules <= a.high


def mean_power_w(energy: Energy | None, time_s: float) -> float | None:
    """Return the mean power of an energy; None if the energy or its time is unknown."""
    if energy is None or not time_s > 0.0:
        return None
    power_w = energy.joules / time_s
    return power_w if math.isfinite(power_w) else None


JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Scale:
    """How many steps, and what a kilowatt-hour costs and emits."""

    steps: float
    price: float | None = None
    """Of a kWh."""
    currency: str = ""
    carbon_g: float | None = None
    """Grams of carbon dioxide (equivalent) of a kWh."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A value with its interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Amount:
        """Return the amount, multiplied by a factor that is not negative."""
        return Amount(factor * self.value, factor * self.low, factor * self.high)


@dataclass(frozen=True, slots=True)
class ManySteps:
    """Energy of many steps with the idle power of the devices meanwhile; of a diff, that of A minus that of B."""

    scale: Scale
    energy_kwh: Amount
    price: Amount | None
    carbon_kg: Amount | None
    sources: tuple[Source, ...]
    """The sources of the energy; both of a diff, if they differ."""
    domains: tuple[str, ...] = ()
    """What the meter saw. Nothing else is included: neither the rest of the machine nor of the data centre."""


def many_steps(step_j: Amount, scale: Scale, sources: tuple[Source, ...], domains: tuple[str, ...] = ()) -> ManySteps:
    """Return what many steps of `step_j` joules take. Price and carbon are unknown unless they were given."""
    kwh = step_j.times(scale.steps / JOULES_PER_KWH)
    price = None if scale.price is None else kwh.times(scale.price)
    carbon_kg = None if scale.carbon_g is None else kwh.times(scale.carbon_g / 1000)
    return ManySteps(scale, kwh, price, carbon_kg, sources, domains)
