"""Attribute energy to operators that were not replayed, by power × time.

A meter measures a whole device, never one operator, so every kernel is assumed to draw the power of the busy device.
On a GPU the parts and the idle part sum to the metered energy. On the host they do not: Python runs between the
operators at the same power, and is a separate part in the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from joulediff.energy.device_time import Work, find_work, is_gpu
from joulediff.model.energy import Energy, Source, at_most, scale, to_energy
from joulediff.model.measurement import DomainEnergy
from joulediff.model.run import Run

# The interval around an attributed energy. With the replays of a tenth to nine tenths of the operators of four
# programs left out, it holds 92 to 96 % of their replayed energies (H200, `benchmarks/attributed.py`).
BELOW_SHARE = 0.8
ABOVE_SHARE = 0.85
# A power limit holds for the mean over milliseconds: a matrix product drew 1000 W for a moment at a limit of 700 W.
BURST = 1.5


def attribute(run: Run, domain: str) -> list[Energy | None]:
    """Return the energy of each kernel of a run in a domain, by power × time; None if it is not known.

    Overlapping kernels share the time equally. The power is that of the part of the step in which a kernel ran, if the
    meter resolves parts of a step, else that of the whole busy time.
    """
    work = find_work(run, domain)
    found: list[Energy | None] = [None] * len(run.kernels)
    if work is not None:
        for i, energy in _attribute_work(run, domain, work).items():
            found[i] = energy
    return found


def attribute_rest(run: Run, domain: str, work: Work, replayed: Mapping[int, Energy]) -> dict[int, Energy]:
    """Return the energy of the kernels in a domain that were not replayed.

    They share the metered energy that the replayed kernels leave, within the range of powers of these and of the whole
    device. If the operators with high power were replayed, the mean power would be too much for the others.
    """
    found = {i: energy for i, energy in _attribute_work(run, domain, work).items() if i not in replayed}
    factor = _fit(run, domain, work, replayed, found) if is_gpu(domain) else None
    if factor is None:
        return found
    fitted = {i: scale(energy, factor) for i, energy in found.items()}
    return {i: energy for i, energy in fitted.items() if energy is not None}


def _fit(
    run: Run, domain: str, work: Work, replayed: Mapping[int, Energy], others: Mapping[int, Energy]
) -> float | None:
    """Return the factor that fits attributed energies to the energy left for them; None if that is not known."""
    times_s = dict(zip(work.kernels, work.times_s, strict=True))
    metered = _metered(run, domain)
    idle = None if metered is None else idle_energy(metered.energy, work)
    watts = [energy.joules / times_s[i] for i, energy in replayed.items() if times_s.get(i, 0.0) > 0.0]
    spread_j, spread_s = sum(energy.joules for energy in others.values()), sum(times_s[i] for i in others)
    if metered is None or idle is None or not watts or not (0.0 < spread_j < math.inf and spread_s > 0.0):
        return None
    left_j = metered.energy.joules - idle.joules - sum(energy.joules for energy in replayed.values())
    watts.append(spread_j / spread_s)
    factor = min(max(left_j / spread_s, min(watts)), max(watts)) * spread_s / spread_j
    return factor if math.isfinite(factor) and factor >= 0.0 else None


def idle_energy(metered: Energy, work: Work) -> Energy | None:
    """Return the energy of a domain while nothing ran in it: at most the metered energy."""
    source: Source = "estimated" if metered.source == "estimated" else "attributed"
    if work.idle_s == 0.0:
        return to_energy(0.0, 0.0, 0.0, source)
    if work.rest is None:
        return None
    return at_most(work.rest.over(work.idle_s, source), max(0.0, metered.joules))


def _attribute_work(run: Run, domain: str, work: Work) -> dict[int, Energy]:
    metered = _metered(run, domain)
    joules = None if metered is None else _spread_joules(run, domain, work, metered.energy)
    if joules is None:
        return {}
    times_s = dict(zip(work.kernels, work.times_s, strict=True))
    rest_w = 0.0 if work.rest is None else work.rest.low_w
    most_w, source = _power_limit(run, domain), _source(run, domain)
    found = {}
    for i, each_j in zip(work.kernels, joules, strict=True):
        low = max(each_j * (1.0 - BELOW_SHARE), min(each_j, rest_w * times_s[i]))
        high = min(each_j * (1.0 + ABOVE_SHARE), max(each_j, most_w * times_s[i]))
        energy = to_energy(each_j, low, high, source)
        if energy is not None:
            found[i] = energy
    return found


def _spread_joules(run: Run, domain: str, work: Work, metered: Energy) -> list[float] | None:
    weights = _weights(run, domain, work)
    total = sum(weights)
    if not is_gpu(domain):
        # Weights are in seconds of the step's mean power.
        return [weight * (metered.joules / work.step_s) for weight in weights]
    idle = idle_energy(metered, work)
    if idle is None or not (math.isfinite(total) and total > 0.0):
        return None
    return [weight / total * (metered.joules - idle.joules) for weight in weights]


def _weights(run: Run, domain: str, work: Work) -> Sequence[float]:
    """Return the time of each kernel × its power as a share of the step's mean power."""
    profile = np.array(() if run.measurement is None else run.measurement.profiles.get(domain, ()), dtype=float)
    kernels = [run.kernels[i] for i in work.kernels]
    end_s = max((kernel.start_s + kernel.duration_s for kernel in kernels), default=0.0)
    span_s = run.traced_s if run.traced_s is not None and run.traced_s > 0.0 else end_s
    if not (len(profile) and np.isfinite(profile).all() and (profile >= 0.0).all() and 0.0 < span_s < math.inf):
        return work.times_s
    with np.errstate(all="ignore"):
        levels = profile / profile.mean()
        starts = np.array([kernel.start_s for kernel in kernels]) / span_s
        ends = np.array([kernel.start_s + kernel.duration_s for kernel in kernels]) / span_s
        if not all(np.isfinite(each).all() for each in (levels, starts, ends)):
            return work.times_s
        weights = np.array(work.times_s) * _mean_power(levels, starts, ends)
    good = np.isfinite(weights).all() and weights.sum() > 0.0
    return [float(weight) for weight in weights] if good else work.times_s


def _mean_power(profile: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the mean of a profile between two phases of the step, for many kernels at once."""
    edges = np.linspace(0.0, 1.0, len(profile) + 1)
    until = np.concatenate([[0.0], np.cumsum(profile)]) / len(profile)
    start, end = np.clip(start, 0.0, 1.0), np.clip(end, 0.0, 1.0)
    here = profile[np.minimum((start * len(profile)).astype(int), len(profile) - 1)]
    # For a kernel far shorter than a part, the difference of two integrals would be rounding error alone.
    short = end - start < 1e-9
    mean = (np.interp(end, edges, until) - np.interp(start, edges, until)) / np.where(short, 1.0, end - start)
    return np.asarray(np.where(short, here, mean))


def _power_limit(run: Run, domain: str) -> float:
    states = () if run.measurement is None else run.measurement.states
    limits = [s.power_limit_w for s in states if s.domain == domain and s.power_limit_w is not None]
    return BURST * limits[-1] if limits and limits[-1] > 0.0 else math.inf


def _metered(run: Run, domain: str) -> DomainEnergy | None:
    return None if run.measurement is None else run.measurement.domains.get(domain)


def _source(run: Run, domain: str) -> Source:
    metered = _metered(run, domain)
    return "estimated" if metered is not None and metered.energy.source == "estimated" else "attributed"
