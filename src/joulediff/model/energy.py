"""Energy: joules with their interval and source, and all arithmetic on such values.

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


# From the strongest to the weakest, as the type names them.
_SOURCES: tuple[Source, ...] = get_args(Source)


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


def add_common(parts: Iterable[Energy]) -> Energy | None:
    """Return the sum of energies that err together; None without parts."""
    return add((None, part) for part in parts)


def subtract(whole: Energy, parts: Sequence[Energy]) -> Energy | None:
    """Return the energy that parts leave of a whole; all errors are independent."""
    joules = whole.joules - sum(part.joules for part in parts)
    below_j = math.hypot(whole.below_j, *(part.above_j for part in parts))
    above_j = math.hypot(whole.above_j, *(part.below_j for part in parts))
    return to_energy(joules, joules - below_j, joules + above_j, weakest([*parts, whole]))


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


def weakest(energies: Iterable[Energy]) -> Source:
    """Return the weakest source of some energies: the one that their sum can claim."""
    return max({energy.source for energy in energies}, key=_SOURCES.index)
