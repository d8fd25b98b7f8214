"""The energy of one step, from a domain's energy curve and the log of its steps.

Energy is known at the meter's readings, steps at the marks of their log. If steps are short, windows begin and end at
readings and steps are interpolated. If steps are long, windows begin and end between steps, because power changes
within a step, and the energy at those moments is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.loop import Stretches
from joulediff.measuring.repeater import StepLog
from joulediff.model.energy import Energy, add_independent, scale, widen
from joulediff.model.errors import MeterFailed, NotCovered
from joulediff.model.measurement import Domain
from joulediff.model.stats import CONFIDENCE_SIGMAS, half_width

# With this many steps in a window, the fractions of a step at its edges no longer matter.
MANY_STEPS = 20
# The rest of a window that a failing meter cut short counts if it is at least this much of one.
SHORT_WINDOW_SHARE = 0.25
# At the power limit the governor of an H200 overshoots for 0.8 s and compensates in the next
# 0.2 s: `mm` is up to 3.9 % off when cut at 0.85 s and 0.9 % at 1 s (`benchmarks/traces.py`). The factor
# covers a second; it is too small for windows that end before 0.9 s.
GOVERNOR_S = 2.0
GOVERNOR_FACTOR = 1.5
# Its swings are longer than a short window, so windows are joined to at least this length.
GOVERNOR_WINDOW_S = 0.5


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Energy of one step in one domain."""

    energy: Energy
    step_s: float
    """Seconds of a step in the very windows the energy is from."""
    end_s: float
    """The end of the last window that the meter covered."""

    @property
    def power_w(self) -> float:
        """Return the mean power of a step."""
        return self.energy.joules / self.step_s


@dataclass(frozen=True, slots=True)
class _WindowEnergy:
    energy: Energy
    steps: float
    duration_s: float


def joules_per_step(curve: Curve, log: StepLog, stretches: Stretches, *, capped: bool = False) -> StepEnergy:
    """Return the energy of one step over all `stretches`, as far as the curve reaches.

    `capped`: the device ran at its power limit, whose governor swings.
    """
    wholes, windows, end_s = [], [], stretches[0][0]
    missing = NotCovered(f"{curve.domain.name}: the meter gave no readings before the first window was complete")
    for edges_s in stretches:
        covered_s = _covered(curve, edges_s)
        if len(covered_s) < 2:
            continue
        try:
            wholes.append(_measure_window(curve, log, covered_s[0], covered_s[-1]))
        except NotCovered as error:
            missing = error
            continue
        windows += _windows(curve, log, joined_edges(covered_s) if capped else covered_s)
        end_s = covered_s[-1]
    if not wholes:
        raise missing
    steps = sum(w.steps for w in wholes)
    energy_j = sum(w.energy.joules for w in wholes) / steps
    sigma_j = curve.domain.repeat_share * energy_j
    if capped and stretches[-1][-1] - stretches[0][0] < GOVERNOR_S:
        sigma_j *= GOVERNOR_FACTOR
    spread_j = half_width(_values(windows or wholes, energy_j), known_sigma=sigma_j)
    measured = scale(add_independent(w.energy for w in wholes), 1 / steps)
    energy = widen(measured, math.hypot(spread_j, CONFIDENCE_SIGMAS * sigma_j))
    if energy is None:
        raise MeterFailed(f"{curve.domain.name}: the readings of {curve.domain.device} give no finite energy")
    return StepEnergy(energy, sum(w.duration_s for w in wholes) / steps, end_s)


def _values(windows: Sequence[_WindowEnergy], energy_j: float) -> list[float]:
    """Return each window's estimate of the energy of a step, by its weight in the whole.

    These are the residuals of a ratio estimate: a window with few steps says little.
    """
    mean_steps = sum(w.steps for w in windows) / len(windows)
    return [energy_j + (w.energy.joules - energy_j * w.steps) / mean_steps for w in windows]


def joined_edges(edges_s: Sequence[float]) -> list[float]:
    """Return the edges of windows that are long enough for a governor; the last one may be longer."""
    found = [edges_s[0]]
    for edge_s in edges_s[1:-1]:
        if edge_s - found[-1] >= GOVERNOR_WINDOW_S and edges_s[-1] - edge_s >= GOVERNOR_WINDOW_S:
            found.append(edge_s)
    return [*found, edges_s[-1]]


def _windows(curve: Curve, log: StepLog, edges_s: Sequence[float]) -> list[_WindowEnergy]:
    found = []
    for start_s, end_s in pairwise(edges_s):
        try:
            found.append(_measure_window(curve, log, start_s, end_s))
        except NotCovered:
            continue  # the stretch as a whole shows whether enough is left
    return found


def unseen_per_step(domain: Domain, steps: float, seconds: float, end_s: float) -> StepEnergy:
    """Return the energy of a step whose counter never changed: between zero and its resolution."""
    resolution_j = domain.resolution_j / steps
    return StepEnergy(Energy(resolution_j / 2, 0.0, resolution_j, domain.source), seconds / steps, end_s)


def _covered(curve: Curve, edges_s: Sequence[float]) -> list[float]:
    """Return the edges that the readings reach; the last may be where the meter failed."""
    last_s = float(curve.time_s[-1])
    # The last update of a healthy counter may be a period before the end; that is not a loss.
    inside = [edge for edge in edges_s if edge <= last_s + 3 * curve.domain.period_s]
    if inside and len(inside) < len(edges_s):
        window_s = (edges_s[-1] - edges_s[0]) / (len(edges_s) - 1)
        if last_s - inside[-1] > SHORT_WINDOW_SHARE * window_s:
            inside.append(last_s)
    return inside


def _measure_window(curve: Curve, log: StepLog, start_s: float, end_s: float) -> _WindowEnergy:
    if log.steps_between(start_s, end_s) >= MANY_STEPS:
        return _at_readings(curve, log, start_s, end_s)
    return _at_step_ends(curve, log, start_s, end_s)


def _at_readings(curve: Curve, log: StepLog, start_s: float, end_s: float) -> _WindowEnergy:
    window = curve.window(start_s, end_s)
    start_s, end_s, start_err_s, end_err_s = window.start_s, window.end_s, window.start_err_s, window.end_err_s
    steps = log.steps_between(start_s, end_s)
    fewest = log.steps_between(start_s + start_err_s, end_s - end_err_s)
    most = log.steps_between(start_s - start_err_s, end_s + end_err_s)
    if fewest <= 0:
        raise NotCovered(
            f"{curve.domain.name}: {window.duration_s:.3f} s are too short for a meter with a reading every "
            f"{curve.domain.period_s:.3g} s",
            fix="give it more time with --seconds",
        )
    joules, low_j, high_j = window.energy.joules, window.energy.low, window.energy.high
    ends_j = [joules, *(end_j / count * steps for end_j in (low_j, high_j) for count in (fewest, most))]
    energy = Energy(joules, min(ends_j), max(ends_j), curve.domain.source)
    return _WindowEnergy(energy.symmetric(), steps, window.duration_s)


def _at_step_ends(curve: Curve, log: StepLog, start_s: float, end_s: float) -> _WindowEnergy:
    marks = log.marks_around(start_s, min(end_s, float(curve.time_s[-1])))
    if marks is None or marks[0] < curve.time_s[0]:
        raise NotCovered(
            f"{curve.domain.name}: no whole step was covered by the meter in {end_s - start_s:.2f} s",
            fix="give it more time with --seconds, or make the step shorter",
        )
    window = curve.between(*marks)
    steps = log.steps_between(*marks)
    if not steps:
        raise NotCovered(f"{curve.domain.name}: no step was finished in {end_s - start_s:.2f} s")
    return _WindowEnergy(window.energy.symmetric(), steps, window.duration_s)
