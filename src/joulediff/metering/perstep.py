"""From a domain's energy curve and the work's progress to joules per step.

Energy is known at the meter's moments and work at its marks. Short steps: windows begin and end
at the meter's moments, and steps are interpolated. Long steps: windows begin and end between
steps, because power changes within a step, and the energy at those moments is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from joulediff.errors import NotCovered
from joulediff.meters.curve import Curve
from joulediff.records import Domain
from joulediff.stability.repeats import Progress
from joulediff.stats import half_width

# With this many steps in a window, the parts of a step at its edges are no longer felt.
MANY_STEPS = 20
# What is left of a window that a dying meter cut short counts if it is at least this much of one.
SHORT_WINDOW_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class PerStep:
    """Energy of one step in one domain, and how it came about."""

    energy_j: float
    half_j: float
    power_w: float
    windows: int
    end_s: float
    """Until when the meter had spoken."""


@dataclass(frozen=True, slots=True)
class _Window:
    energy_j: float
    low_j: float
    high_j: float
    power_w: float


def joules_per_step(curve: Curve, progress: Progress, edges_s: Sequence[float]) -> PerStep:
    """Return the energy of one step over the windows between `edges_s`, as far as the curve reaches."""
    edges_s = _covered(curve, edges_s)
    windows = []
    for start_s, end_s in pairwise(edges_s):
        try:
            windows.append(_measure_window(curve, progress, start_s, end_s))
        except NotCovered:
            continue  # the span of all windows, below, tells whether enough is left
    whole = _measure_window(curve, progress, edges_s[0], edges_s[-1])
    meter_j = max(whole.high_j - whole.energy_j, whole.energy_j - whole.low_j)
    values = [w.energy_j for w in windows] or [whole.energy_j]
    repeats_j = half_width(values, known_sigma=curve.domain.repeat_share * whole.energy_j)
    return PerStep(whole.energy_j, math.hypot(repeats_j, meter_j), whole.power_w, len(values), edges_s[-1])


def unseen_per_step(domain: Domain, steps: float, edges_s: Sequence[float]) -> PerStep:
    """Return the energy of a step whose counter stood still: somewhere below its resolution."""
    half_j = domain.resolution_j / 2
    return PerStep(half_j / steps, half_j / steps, half_j / (edges_s[-1] - edges_s[0]), len(edges_s) - 1, edges_s[-1])


def _covered(curve: Curve, edges_s: Sequence[float]) -> list[float]:
    # The last tick of a healthy counter may lie a period before the end; that is not a loss.
    reach_s = float(curve.time_s[-1]) + 3 * curve.domain.period_s
    inside = [edge for edge in edges_s if edge <= reach_s]
    if len(inside) < len(edges_s):
        window_s = (edges_s[-1] - edges_s[0]) / (len(edges_s) - 1)
        last_s = float(curve.time_s[-1])
        if not inside or last_s - inside[-1] > SHORT_WINDOW_SHARE * window_s:
            inside.append(last_s)
    if len(inside) < 2:
        raise NotCovered(f"{curve.domain.name}: the meter fell silent before the first window was complete")
    return inside


def _measure_window(curve: Curve, progress: Progress, start_s: float, end_s: float) -> _Window:
    steps = float(progress.steps_at(end_s) - progress.steps_at(start_s))
    if steps >= MANY_STEPS:
        return _at_meter_moments(curve, progress, start_s, end_s)
    return _at_step_ends(curve, progress, start_s, end_s)


def _at_meter_moments(curve: Curve, progress: Progress, start_s: float, end_s: float) -> _Window:
    span = curve.window(start_s, end_s)
    count, fewest, most = (
        float(progress.steps_at(b) - progress.steps_at(a))
        for a, b in (
            (span.start_s, span.end_s),
            (span.start_s + span.start_err_s, span.end_s - span.end_err_s),
            (span.start_s - span.start_err_s, span.end_s + span.end_err_s),
        )
    )
    if fewest <= 0:
        raise NotCovered(
            f"{curve.domain.name}: {span.duration_s:.3f} s are too short for a meter that speaks every "
            f"{curve.domain.period_s:.3g} s",
            fix="give it more time with --seconds",
        )
    return _Window(span.energy_j / count, span.low_j / most, span.high_j / fewest, span.energy_j / span.duration_s)


def _at_step_ends(curve: Curve, progress: Progress, start_s: float, end_s: float) -> _Window:
    marks = progress.marks_within(max(start_s, float(curve.time_s[0])), min(end_s, float(curve.time_s[-1])))
    if marks is None:
        raise NotCovered(
            f"{curve.domain.name}: no whole step was covered by the meter in {end_s - start_s:.2f} s",
            fix="give it more time with --seconds, or make the step shorter",
        )
    span = curve.between(*marks)
    count = float(progress.steps_at(marks[1]) - progress.steps_at(marks[0]))
    return _Window(span.energy_j / count, span.low_j / count, span.high_j / count, span.energy_j / span.duration_s)
