"""Energy: joules with the interval that holds them and where they came from, and arithmetic on such values.

Energy crosses borders as `Energy`, never as a bare float. Its interval holds the value with 95 % confidence as far
as repeats and the resolution of the meter tell; an estimate says so in `source`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Source = Literal["metered", "replayed", "attributed", "estimated"]


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules with the interval that holds them and where they came from."""

    joules: float
    low: float
    high: float
    source: Source

    def __post_init__(self) -> None:
        if not self.low <= self.joules <= self.high:
            raise ValueError(f"energy {self.joules} J outside its interval {self.low}..{self.high} J")

    @property
    def half_width_share(self) -> float:
        """Return the larger half of the interval as a share of the value."""
        half_j = max(self.high - self.joules, self.joules - self.low)
        return half_j / abs(self.joules) if self.joules else float("inf")


# From the strongest to the weakest, as the type names them.
_SOURCES: tuple[Source, ...] = get_args(Source)


def to_energy(joules: float, low: float, high: float, source: Source) -> Energy | None:
    """Return an energy whose interval is stretched to hold it, or None for what is not finite."""
    if not (math.isfinite(joules) and math.isfinite(low) and math.isfinite(high)):
        return None
    return Energy(joules, min(low, joules), max(high, joules), source)


def add(parts: Iterable[tuple[Hashable, Energy]]) -> Energy | None:
    """Return the sum of energies, each with what tells its measurement; None of nothing."""
    groups: defaultdict[Hashable, list[Energy]] = defaultdict(list)
    for key, energy in parts:
        groups[key].append(energy)
    known = [energy for group in groups.values() for energy in group]
    if not known:
        return None
    joules = sum(e.joules for e in known)
    below = [sum(e.joules - e.low for e in group) for group in groups.values()]
    above = [sum(e.high - e.joules for e in group) for group in groups.values()]
    return to_energy(joules, joules - math.hypot(*below), joules + math.hypot(*above), weakest(known))


def scale(energy: Energy, share: float) -> Energy | None:
    """Return a part of an energy, with the same relative interval."""
    return to_energy(energy.joules * share, energy.low * share, energy.high * share, energy.source)


def weakest(energies: Iterable[Energy]) -> Source:
    """Return the source that a sum can claim: that of its weakest part."""
    return max((energy.source for energy in energies), key=_SOURCES.index)
