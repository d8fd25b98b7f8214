"""Where in a step the watts are: the power curve of many steps, folded on the phase of the step.

Only steps that are long for the meter have such a profile. It conserves: its mean times the step's
seconds is the energy of the step. A sensor that is late shows it late (H200: up to 62 ms, `meters.nvml`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from joulediff.metering.perstep import Stretches
from joulediff.meters.curve import GAP_PERIODS, Curve
from joulediff.stability.repeats import Progress

# With fewer parts than this a profile says little more than its mean.
LEAST_PARTS = 10
# More than a reader can tell apart, and than a manifest should hold.
MAX_PARTS = 200


def fold(
    curve: Curve, progress: Progress, stretches: Stretches, *, step_s: float, energy_j: float
) -> tuple[float, ...] | None:
    """Return the watts in equal parts of a step of `step_s` and `energy_j`; None where the meter cannot tell.

    There are as many parts as the meter has samples in a step. Steps in which samples were lost are left out.
    """
    parts = min(MAX_PARTS, int(step_s / curve.domain.period_s))
    if curve.domain.kind != "power" or parts < LEAST_PARTS:
        return None
    steps = [s for edges_s in stretches for s in _steps(progress, edges_s[0], edges_s[-1]) if _is_covered(curve, *s)]
    if not steps:
        return None
    start_s, end_s = np.array(steps).T[:, :, np.newaxis]
    at_s = start_s + (end_s - start_s) * np.linspace(0.0, 1.0, parts + 1)
    part_j = np.diff(np.interp(at_s, curve.time_s, curve.energy_j)).sum(axis=0)
    total_j = float(part_j.sum())
    if total_j <= 0:
        return None
    return tuple((part_j / total_j * parts * energy_j / step_s).tolist())


def _steps(progress: Progress, start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    """Yield the begin and the end of each step that was marked on its own, by the marks around two moments."""
    first, last = (bisect_right(progress.time_s, edge_s) - 1 for edge_s in (start_s, end_s))
    for mark in range(max(first, 0), last):
        if progress.steps[mark + 1] - progress.steps[mark] == 1:
            yield progress.time_s[mark], progress.time_s[mark + 1]


def _is_covered(curve: Curve, start_s: float, end_s: float) -> bool:
    first = int(np.searchsorted(curve.time_s, start_s, side="right")) - 1
    last = int(np.searchsorted(curve.time_s, end_s, side="left"))
    if first < 0 or last >= len(curve.time_s):
        return False
    return bool(np.diff(curve.time_s[first : last + 1]).max() <= GAP_PERIODS * curve.domain.period_s)
