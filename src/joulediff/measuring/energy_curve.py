"""Energy over time, from the readings of one domain.

Energy is known exactly only at the moments of a sensor's readings, so windows begin and end there
(`window`), and the caller counts the work that ran in between. A counter ticked between two reads:
that uncertainty of time is kept in the `Window`, not in the joules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from joulediff.model.energy import Energy
from joulediff.model.errors import MeterFailed, NotCovered
from joulediff.model.measurement import Domain, Reading
from joulediff.model.stats import CONFIDENCE_SIGMAS

# A sample later than this many periods after the one before means that samples were lost.
GAP_PERIODS = 2.5
# A counter that has not changed for this many periods stands still.
STILL_PERIODS = 4
# A window with more of its time in gaps than this is refused.
GAP_SHARE_LIMIT = 0.25
# A tick may come this much later than the period says (H200: 97 to 103 ms for 100 ms).
TICK_JITTER = 1.1


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time with its energy. Each edge is known to within its `_err_s`."""

    start_s: float
    end_s: float
    start_err_s: float
    end_err_s: float
    energy: Energy

    @property
    def duration_s(self) -> float:
        """Return the seconds between the two edges."""
        return self.end_s - self.start_s

    @property
    def power_w(self) -> float:
        """Return the mean power between the two edges."""
        return self.energy.joules / self.duration_s


@dataclass(frozen=True, slots=True)
class Curve:
    """Cumulative energy at the moments it is known: `energy_j[i]` at `time_s[i] ± err_s[i]`."""

    domain: Domain
    time_s: np.ndarray
    err_s: np.ndarray
    energy_j: np.ndarray
    error_j: np.ndarray
    """Standard error of the energy since the moment before (power samples)."""

    @classmethod
    def from_readings(cls, domain: Domain, readings: Sequence[Reading]) -> Curve:
        """Return the curve of one domain. Raises if the readings contradict themselves."""
        build = _from_counter if domain.kind == "counter" else _from_power
        return build(domain, readings)

    def energy_at(self, time_s: np.ndarray) -> np.ndarray:
        """Return the cumulative energy at any moments, linear between the known ones."""
        return np.asarray(np.interp(time_s, self.time_s, self.energy_j))

    def window(self, start_s: float, end_s: float) -> Window:
        """Return the window between the last known moments before `start_s` and before `end_s`.

        Neighbouring windows share their edge. No window reaches beyond `end_s`, where the load may have stopped.
        """
        first, last = np.searchsorted(self.time_s, [start_s, end_s], side="right") - 1
        first, last = max(0, int(first)), int(last)
        if first >= last or self.time_s[last] <= start_s:
            raise NotCovered(
                f"{self.domain.name}: the meter gave fewer than two readings in {end_s - start_s:.3f} s",
                fix=f"give it more time: it has a new value every {self.domain.period_s * 1e3:.3g} ms",
            )
        energy_j = float(self.energy_j[last] - self.energy_j[first])
        error_j = self._error(first, last)
        least_j = min(energy_j, max(0.0, energy_j - error_j))
        self._refuse_gaps(first, last)
        return Window(
            start_s=float(self.time_s[first]),
            end_s=float(self.time_s[last]),
            start_err_s=float(self.err_s[first]),
            end_err_s=float(self.err_s[last]),
            energy=Energy(energy_j, least_j, energy_j + error_j, self.domain.source),
        )

    def between(self, start_s: float, end_s: float) -> Window:
        """Return the energy between any two moments, bounded by the known moments around them.

        Energy never decreases, so its value at a moment lies between the values before and after.
        """
        if start_s < self.time_s[0] or end_s > self.time_s[-1]:
            raise NotCovered(f"{self.domain.name}: the meter's readings do not reach over {end_s - start_s:.3f} s")
        first, last = (int(i) for i in np.searchsorted(self.time_s, [start_s, end_s], side="right") - 1)
        self._refuse_gaps(first, min(last + 1, len(self.time_s) - 1))
        edge_j = self.energy_at(np.array([start_s, end_s]))
        low_j, high_j = self._bounds(np.array([start_s, end_s]))
        error_j = self._error(first, last)
        energy_j = float(edge_j[1] - edge_j[0])
        least_j = min(energy_j, max(0.0, float(low_j[1] - high_j[0]) - error_j))
        most_j = max(energy_j, float(high_j[1] - low_j[0]) + error_j)
        return Window(start_s, end_s, 0.0, 0.0, Energy(energy_j, least_j, most_j, self.domain.source))

    def _error(self, first: int, last: int) -> float:
        # The steps err independently of each other: a 95 % bound of their sum.
        steps_j = float(np.sqrt((self.error_j[first + 1 : last + 1] ** 2).sum()))
        return CONFIDENCE_SIGMAS * steps_j + self.domain.resolution_j

    def _bounds(self, at_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        surely_before = np.searchsorted(self.time_s + self.err_s, at_s, side="right") - 1
        surely_after = np.searchsorted(self.time_s - self.err_s, at_s, side="left")
        last = len(self.time_s) - 1
        if self.domain.kind == "power":
            # Between two samples the energy errs no more than over the whole step between them.
            here_j = self.energy_at(at_s)
            step_j = self.error_j[np.clip(surely_before + 1, 0, last)]
            return here_j - step_j, here_j + step_j
        return self.energy_j[np.clip(surely_before, 0, last)], self.energy_j[np.clip(surely_after, 0, last)]

    def _refuse_gaps(self, first: int, last: int) -> None:
        if self.domain.kind != "power":
            return
        steps_s = np.diff(self.time_s[first : last + 1])
        lost_s = float(steps_s[steps_s > GAP_PERIODS * self.domain.period_s].sum())
        whole_s = float(self.time_s[last] - self.time_s[first])
        if lost_s > GAP_SHARE_LIMIT * whole_s:
            raise NotCovered(
                f"{self.domain.name}: the meter gave no readings for {lost_s:.2f} of {whole_s:.2f} s",
                fix="measure again; if this repeats, the meter or its log drops samples",
            )


def _from_counter(domain: Domain, readings: Sequence[Reading]) -> Curve:
    """Keep each change of the counter: it ticked after the read before and before this one."""
    curve = _changes(domain, readings, [], [], [])
    if len(curve.time_s) < 2:
        raise NotCovered(
            f"{domain.name}: the counter of {domain.device} changed {len(curve.time_s)} times in {len(readings)} reads",
            fix="give it more time; if it never changes, `joulediff doctor` shows whether this counter works",
        )
    return curve


def curve_from_start(domain: Domain, readings: Sequence[Reading]) -> Curve:
    """Return a curve that begins at the first reading, also of a counter that did not change since."""
    if domain.kind == "power" or not readings:
        return Curve.from_readings(domain, readings)
    first = readings[0]
    half_s = (first.within_s + domain.period_s * TICK_JITTER) / 2
    return _changes(domain, readings, [first.time_s - half_s], [half_s], [0.0])


def _changes(
    domain: Domain, readings: Sequence[Reading], time_s: list[float], err_s: list[float], energy_j: list[float]
) -> Curve:
    """Return the curve with each change of the counter after the moments that are given."""
    total_j = 0.0
    for before, now in pairwise(readings):
        rise_j = rise(domain, before, now)
        if rise_j == 0:
            continue
        total_j += rise_j
        # Polled too rarely, several ticks pass between two reads: the last is at most a period old.
        earliest_s = max(before.time_s - before.within_s, now.time_s - now.within_s - domain.period_s * TICK_JITTER)
        time_s.append((earliest_s + now.time_s) / 2)
        err_s.append((now.time_s - earliest_s) / 2)
        energy_j.append(total_j)
    return Curve(domain, np.array(time_s), np.array(err_s), np.array(energy_j), np.zeros(len(time_s)))


def rise(domain: Domain, before: Reading, now: Reading) -> float:
    """Return the joules a counter gained between two reads, also across a wrap-around."""
    rise_j = now.value - before.value
    if rise_j >= 0:
        return rise_j
    # A wrap starts high and ends low; anything else is a reset or a broken counter.
    if domain.wrap_j is not None and before.value > domain.wrap_j / 2 > now.value:
        return rise_j + domain.wrap_j
    raise MeterFailed(
        f"{domain.name}: the counter of {domain.device} went backwards, from {before.value:.3f} to {now.value:.3f} J",
        fix="measure again; a driver reset or a suspended machine causes this",
    )


def check_order(domain: Domain, before: Reading, now: Reading) -> None:
    """Raise if a reading cannot follow the one before: time or a counter runs backwards."""
    if now.time_s < before.time_s or (domain.kind == "power" and now.time_s == before.time_s):
        raise MeterFailed(
            f"{domain.name}: the time stamps of {domain.device} run backwards",
            fix="measure again; if this repeats, something keeps setting the meter's clock",
        )
    if domain.kind == "counter":
        rise(domain, before, now)


def _from_power(domain: Domain, readings: Sequence[Reading]) -> Curve:
    """Integrate power samples; between two samples the power is taken as linear."""
    time_s = np.array([r.time_s for r in readings])
    power_w = np.array([r.value for r in readings])
    if len(time_s) < 2:
        raise NotCovered(f"{domain.name}: {domain.device} gave {len(time_s)} power samples, and energy needs two")
    step_s = np.diff(time_s)
    energy_j = np.concatenate([[0.0], np.cumsum(step_s * (power_w[1:] + power_w[:-1]) / 2)])
    return Curve(
        domain,
        time_s,
        np.zeros(len(time_s)),
        energy_j,
        np.concatenate([[0.0], _step_errors(domain, step_s, power_w)]),
    )


def _step_errors(domain: Domain, step_s: np.ndarray, power_w: np.ndarray) -> np.ndarray:
    """Return the standard error of each step's energy.

    If power changes faster than it is sampled, each sample is a random draw from it and neighbours differ by 1.4
    sigma; if it changes more slowly, this overestimates the error. In a gap any power that was seen is possible.
    """
    error_j = step_s * np.abs(np.diff(power_w)) / np.sqrt(2)
    lost = step_s > GAP_PERIODS * domain.period_s
    if lost.any():
        low_w, high_w = power_w.min(), power_w.max()
        mean_w = (power_w[1:] + power_w[:-1]) / 2
        error_j = np.where(lost, step_s * np.maximum(high_w - mean_w, mean_w - low_w) / np.sqrt(3), error_j)
    return np.asarray(error_j)
