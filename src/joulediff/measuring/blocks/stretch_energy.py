"""The energy of a domain in stretches of time, which need not begin and end at readings.

Between two readings of a meter only their difference is known. A stretch that covers a part of that time gets its share
of it, and an interval from nearly nothing to all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from joulediff.measuring.energy_curve import Curve
from joulediff.model.energy import Energy, to_energy
from joulediff.model.measurement import Domain
from joulediff.model.stats import CONFIDENCE_SIGMAS

# No part of the time between two readings has more than this many times the highest mean power between any two. An
# H200 at its limit of 700 W draws over 1000 W for a moment, in one matrix product.
MOST_POWER = 3.0


_NOTHING_S = 1e-9


@dataclass(frozen=True, slots=True)
class StretchEnergy:
    """Joules with the ends of their interval, and the seconds of the stretches that no reading encloses."""

    joules: float = 0.0
    low_j: float = 0.0
    high_j: float = 0.0
    unread_s: float = 0.0

    def __add__(self, other: StretchEnergy) -> StretchEnergy:
        return StretchEnergy(
            self.joules + other.joules,
            self.low_j + other.low_j,
            self.high_j + other.high_j,
            self.unread_s + other.unread_s,
        )

    def to_energy(self, domain: Domain) -> Energy | None:
        """Return the energy with the error of the sensor itself."""
        error_j = CONFIDENCE_SIGMAS * domain.repeat_share * self.joules + domain.resolution_j
        return to_energy(self.joules, max(0.0, self.low_j - error_j), self.high_j + error_j, domain.source)


def energy_in(curve: Curve, stretches: Sequence[tuple[float, float]]) -> StretchEnergy:
    """Return the energy of a domain in stretches of time that are in order and do not overlap.

    A counter without a change stood still: it saw less than its resolution.
    """
    edges_s = np.array(stretches, dtype=float).ravel()
    covered_s = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * (np.arange(len(edges_s) - 1) % 2 == 0))])

    def covered(until_s: np.ndarray) -> np.ndarray:
        return np.asarray(np.interp(until_s, edges_s, covered_s))

    if len(curve.time_s) < 2:
        resolution_j = curve.domain.resolution_j
        return StretchEnergy(resolution_j / 2, 0.0, resolution_j)
    whole_s = float(covered_s[-1])
    time_s, err_s, energy_j = curve.time_s, curve.err_s, np.diff(curve.energy_j)
    first_s, last_s = time_s[:-1] - err_s[:-1], time_s[1:] + err_s[1:]
    inside_s = covered(last_s) - covered(first_s)
    outside_s = np.maximum(0.0, last_s - first_s - inside_s)
    most_w = MOST_POWER * float((energy_j / np.maximum(last_s - first_s, 1e-9)).max())
    is_touched = inside_s > 0
    share = np.diff(covered(time_s)) / np.maximum(np.diff(time_s), 1e-12)
    # Samples inside a stretch are random draws from its power. Those at its ends may be of either side.
    is_inner = _is_inner(outside_s <= _NOTHING_S)
    end_j = np.where(is_touched & ~is_inner, curve.error_j[1:] / np.sqrt(2), 0.0)
    low_j = np.where(is_touched, np.maximum(0.0, energy_j - end_j - outside_s * most_w), 0.0)
    high_j = np.where(is_touched, energy_j + end_j, 0.0)
    error_j = CONFIDENCE_SIGMAS * float(np.sqrt((curve.error_j[1:][is_inner] ** 2).sum()))
    unread_s = whole_s - float(covered(time_s[-1]) - covered(time_s[0]))
    joules = float((energy_j * np.clip(share, 0.0, 1.0)).sum())
    return StretchEnergy(
        joules,
        min(joules, max(0.0, float(low_j.sum()) - error_j)),
        max(joules, float(high_j.sum()) + error_j + unread_s * most_w),
        max(0.0, unread_s),
    )


def _is_inner(is_full: np.ndarray) -> np.ndarray:
    """Return which times between readings a stretch covers fully, with both neighbours."""
    around = np.concatenate([[False], is_full, [False]])
    return np.asarray(is_full & around[:-2] & around[2:])
