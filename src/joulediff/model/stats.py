"""Confidence intervals from a few repeats.

A few windows say little about their own spread, so it is pooled with the known spread of the meter between repeated
measurements. A single window then has an interval too, many windows outweigh the known spread, and windows that
contradict it replace it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95
# The same in standard deviations of a normal distribution.
CONFIDENCE_SIGMAS = 1.96
# Weight of the known spread against the observed one, in degrees of freedom: ten windows of a noisy machine
# outweigh it.
PRIOR_DOF = 10.0
# Windows contradict the known spread if theirs is this many times as wide (by chance 1 in 370 with two windows).
CONTRADICTION = 3.0


def half_width(values: Sequence[float] | np.ndarray, *, known_sigma: float) -> float:
    """Return the half width of the 95 % interval of the mean of `values`, whose spread is about `known_sigma`.

    Neighbouring windows are correlated (a governor swings over about a second) and count less than independent ones:
    the lag-1 correction of a batch-means interval.
    """
    observed = np.asarray(values, dtype=float)
    count = len(observed)
    if count == 0:
        raise ValueError("no values, so no interval")
    squares = float(((observed - observed.mean()) ** 2).sum())
    contradicted = squares > (CONTRADICTION * known_sigma) ** 2 * (count - 1)
    prior_dof = 0.0 if contradicted else PRIOR_DOF
    dof = prior_dof + count - 1
    variance = (prior_dof * known_sigma**2 / count + squares / effective_count(observed)) / dof
    return student_t(dof) * math.sqrt(variance)


def effective_count(values: np.ndarray) -> float:
    """Return the number of independent values with the same information, from the lag-1 correlation."""
    count = len(values)
    if count < 6:
        return float(count)
    centred = values - values.mean()
    power = float((centred**2).sum())
    if power == 0:
        return float(count)
    rho = float((centred[1:] * centred[:-1]).sum()) / power
    # Estimated from few values, a correlation comes out too small by about (1 + 3 rho) / count (Kendall 1954).
    rho = min(0.95, max(0.0, (count * rho + 1) / (count - 3)))
    return max(1.0, count * (1 - rho) / (1 + rho))


def student_t(dof: float) -> float:
    """Return the two-sided 95 % quantile of Student's t with `dof` degrees of freedom."""
    from scipy.special import stdtrit  # scipy takes 0.1 s to import; nothing else here needs it

    return float(stdtrit(dof, 0.5 + CONFIDENCE / 2))
