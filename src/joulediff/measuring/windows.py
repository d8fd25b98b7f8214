"""From a domain's energy curve and the work's progress to joules per step.

Energy is known at the meter's moments and work at its marks. Short steps: windows begin and end
at the meter's moments, and steps are interpolated. Long steps: windows begin and end between
steps, because power changes within a step, and the energy at those moments is bounded.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.repeater import Progress
from joulediff.model.errors import NotCovered
from joulediff.model.measurement import Domain
from joulediff.model.stats import CONFIDENCE_SIGMAS, half_width

# With this many steps in a window, the parts of a step at its edges are no longer felt.
MANY_STEPS = 20
# What is left of a window that a dying meter cut short counts if it is at least this much of one.
SHORT_WINDOW_SHARE = 0.25
# At the power limit the governor of an H200 overshoots for 0.8 s and makes up for it in the next
# 0.2 s: `mm` is up to 3.9 % off when cut at 0.85 s and 0.9 % at 1 s (`benchmarks/traces.py`). The factor
# covers a second; it is too small for windows that end before 0.9 s.
GOVERNOR_S = 2.0
GOVERNOR_FACTOR = 1.5

# Contiguous windows, by their edges; between two stretches the work stood still.
Stretches = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class PerStep:
    """Energy of one step in one domain. `end_s`: until when the meter had spoken."""

    energy_j: float
    half_j: float
    power_w: float
    step_s: float
    """Seconds of a step in the very windows the energy is from."""
    end_s: float


@dataclass(frozen=True, slots=True)
class _Window:
    energy_j: float
    doubt_j: float
    steps: float
    duration_s: float


def joules_per_step(curve: Curve, progress: Progress, stretches: Stretches, *, capped: bool = False) -> PerStep:
    """Return the energy of one step over all `stretches`, as far as the curve reaches.

    `capped`: the device ran at its power limit, whose governor swings.
    """
    wholes, windows, end_s = [], [], stretches[0][0]
    missing = NotCovered(f"{curve.domain.name}: the meter fell silent before the first window was complete")
    for edges_s in stretches:
        covered_s = _covered(curve, edges_s)
        if len(covered_s) < 2:
            continue
        try:
            wholes.append(_measure_window(curve, progress, covered_s[0], covered_s[-1]))
        except NotCovered as error:
            missing = error
            continue
        windows += _windows(curve, progress, covered_s)
        end_s = covered_s[-1]
    if not wholes:
        raise missing
    steps = sum(w.steps for w in wholes)
    energy_j = sum(w.energy_j for w in wholes) / steps
    meter_j = math.hypot(*(w.doubt_j for w in wholes)) / steps
    sigma_j = curve.domain.repeat_share * energy_j
    if capped and stretches[-1][-1] - stretches[0][0] < GOVERNOR_S:
        sigma_j *= GOVERNOR_FACTOR
    spread_j = half_width(_values(windows or wholes, energy_j), known_sigma=sigma_j)
    half_j = math.hypot(spread_j, CONFIDENCE_SIGMAS * sigma_j, meter_j)
    step_s = sum(w.duration_s for w in wholes) / steps
    return PerStep(energy_j, half_j, energy_j / step_s, step_s, end_s)


def _values(windows: Sequence[_Window], energy_j: float) -> list[float]:
    """Return what each window says about the energy of a step, by its weight in the whole.

    These are the residuals of a ratio estimate: a window with few steps says little.
    """
    mean_steps = sum(w.steps for w in windows) / len(windows)
    return [energy_j + (w.energy_j - energy_j * w.steps) / mean_steps for w in windows]


def _windows(curve: Curve, progress: Progress, edges_s: Sequence[float]) -> list[_Window]:
    found = []
    for start_s, end_s in pairwise(edges_s):
        try:
            found.append(_measure_window(curve, progress, start_s, end_s))
        except NotCovered:
            continue  # the stretch as a whole tells whether enough is left
    return found


def unseen_per_step(domain: Domain, steps: float, seconds: float, end_s: float) -> PerStep:
    """Return the energy of a step whose counter stood still: somewhere below its resolution."""
    half_j = domain.resolution_j / 2
    return PerStep(half_j / steps, half_j / steps, half_j / seconds, seconds / steps, end_s)


def _covered(curve: Curve, edges_s: Sequence[float]) -> list[float]:
    """Return the edges the meter has spoken about; the last may be where it fell silent."""
    last_s = float(curve.time_s[-1])
    # The last tick of a healthy counter may lie a period before the end; that is not a loss.
    inside = [edge for edge in edges_s if edge <= last_s + 3 * curve.domain.period_s]
    if inside and len(inside) < len(edges_s):
        window_s = (edges_s[-1] - edges_s[0]) / (len(edges_s) - 1)
        if last_s - inside[-1] > SHORT_WINDOW_SHARE * window_s:
            inside.append(last_s)
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
    low_j, high_j = span.low_j / most * count, span.high_j / fewest * count
    doubt_j = max(high_j - span.energy_j, span.energy_j - low_j)
    return _Window(span.energy_j, doubt_j, count, span.duration_s)


def _at_step_ends(curve: Curve, progress: Progress, start_s: float, end_s: float) -> _Window:
    marks = progress.marks_around(start_s, min(end_s, float(curve.time_s[-1])))
    if marks is None or marks[0] < curve.time_s[0]:
        raise NotCovered(
            f"{curve.domain.name}: no whole step was covered by the meter in {end_s - start_s:.2f} s",
            fix="give it more time with --seconds, or make the step shorter",
        )
    span = curve.between(*marks)
    steps = float(progress.steps_at(marks[1]) - progress.steps_at(marks[0]))
    if not steps:
        raise NotCovered(f"{curve.domain.name}: no step was finished in {end_s - start_s:.2f} s")
    return _Window(span.energy_j, max(span.high_j - span.energy_j, span.energy_j - span.low_j), steps, span.duration_s)


def mean_clocks(seen_mhz: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each domain's clock over the looks that saw it."""
    found: dict[str, list[float]] = defaultdict(list)
    for clocks_mhz in seen_mhz:
        for domain, clock_mhz in clocks_mhz.items():
            found[domain].append(clock_mhz)
    return {domain: sum(clocks) / len(clocks) for domain, clocks in found.items()}


def cpu_per_step(stretches: Stretches, spent_s: Sequence[Sequence[float]], progress: Progress) -> float | None:
    """Return the CPU seconds of one step, from those spent until each edge; None where no window has both.

    A program that broke off has edges without CPU seconds: only windows that have them count.
    """
    cpu_s = steps = 0.0
    for edges_s, seconds in zip(stretches, spent_s, strict=False):
        last = min(len(edges_s), len(seconds)) - 1
        if last > 0:
            cpu_s += seconds[last] - seconds[0]
            steps += float(progress.steps_at(edges_s[last]) - progress.steps_at(edges_s[0]))
    return max(0.0, cpu_s) / steps if steps > 0 else None
