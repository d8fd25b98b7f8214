"""Joules of operators from power × time: all that a meter can tell of an operator that was not replayed.

A meter sees the whole device, never one operator, so kernels are taken to draw the power of the device while it was
busy. On a GPU the parts, with the idle part, sum to what was metered. On the host they do not: Python works there
between the operators, at the same power, and has its own account in the ledger.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from joulediff.energy.activity import Work, find_work, is_gpu
from joulediff.energy.calls import find_calls
from joulediff.energy.sums import to_energy
from joulediff.records import DomainEnergy, Energy, Source
from joulediff.runs import Run
from joulediff.stats import CONFIDENCE_SIGMAS

# How far a kernel's power may lie from that of the step with nothing else known. Chosen, not measured: a resting H200
# draws 120 W and a matrix product over 1000 W, and the mean of a step lies between.
UNKNOWN_SHARE = 0.5
# The least where replays tell how operators differ. Chosen for what they cannot tell: the same matrix product with
# other values drew 89 to 100 % on the H200 (68 % with zeros alone), warm or cold caches made up to 15 %.
REPLAYED_SHARE = 0.15
# A limit holds for the mean over milliseconds: a matrix product drew 1000 W for a moment on a card limited to 700 W.
BURST = 1.5


def attribute(run: Run, domain: str) -> list[Energy | None]:
    """Return the energy of each kernel of a run in a domain, by power × time; None where it is not known.

    Overlapping kernels share the time equally. The power is that of the step's part in which a kernel ran, where the
    meter can tell parts of a step, else that of the whole busy time.
    """
    work = find_work(run, domain)
    found: list[Energy | None] = [None] * len(run.kernels)
    if work is not None:
        replayed = {i: energy for call in find_calls(run, domain, work) for i, energy in call.kernels.items()}
        for i, energy in _attribute_work(run, domain, work, replayed).items():
            found[i] = energy
    return found


def attribute_rest(run: Run, domain: str, work: Work, replayed: Mapping[int, Energy]) -> dict[int, Energy]:
    """Return the energy of the kernels in a domain that were not replayed.

    A kernel of the same name that was replayed in another operator lends its power; else the step does.
    """
    times_s = dict(zip(work.kernels, work.times_s, strict=True))
    lenders: defaultdict[str, list[int]] = defaultdict(list)
    for i in replayed:
        lenders[run.kernels[i].name].append(i)
    watts = {name: _replayed_watts(times_s, replayed, indices) for name, indices in lenders.items()}
    found = {i: energy for i, energy in _attribute_work(run, domain, work, replayed).items() if i not in replayed}
    source = _source(run, domain)
    for i in times_s.keys() - replayed.keys():
        lent = watts.get(run.kernels[i].name)
        energy = None if lent is None else _lend(*lent, times_s[i], source)
        if energy is not None:
            found[i] = energy
    return found


def idle_energy(metered: Energy, work: Work) -> Energy | None:
    """Return what a domain drew while nothing ran in it: at most what was metered."""
    source: Source = "estimated" if metered.source == "estimated" else "attributed"
    if work.idle_s == 0.0:
        return to_energy(0.0, 0.0, 0.0, source)
    if work.rest is None:
        return None
    watts = (work.rest.power_w, work.rest.low_w, work.rest.high_w)
    joules, low, high = (min(each_w * work.idle_s, max(0.0, metered.joules)) for each_w in watts)
    return to_energy(joules, low, high, source)


def _attribute_work(run: Run, domain: str, work: Work, replayed: Mapping[int, Energy]) -> dict[int, Energy]:
    metered = _metered(run, domain)
    joules = None if metered is None else _spread_joules(run, domain, work, metered.energy)
    if joules is None:
        return {}
    times_s = dict(zip(work.kernels, work.times_s, strict=True))
    share = _unlikeness(times_s, replayed)
    rest_w = 0.0 if work.rest is None else work.rest.low_w
    most_w, source = _power_limit(run, domain), _source(run, domain)
    found = {}
    for i, each_j in zip(work.kernels, joules, strict=True):
        low = max(each_j * (1.0 - share), min(each_j, rest_w * times_s[i]))
        high = min(each_j * (1.0 + share), max(each_j, most_w * times_s[i]))
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
        power = _mean_power(
            profile / profile.mean(),
            np.array([kernel.start_s for kernel in kernels]) / span_s,
            np.array([kernel.start_s + kernel.duration_s for kernel in kernels]) / span_s,
        )
        weights = np.array(work.times_s) * power
    good = np.isfinite(weights).all() and weights.sum() > 0.0
    return [float(weight) for weight in weights] if good else work.times_s


def _mean_power(profile: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the mean of a profile between two phases of the step, for many at once."""
    edges = np.linspace(0.0, 1.0, len(profile) + 1)
    until = np.concatenate([[0.0], np.cumsum(profile)]) / len(profile)
    start, end = np.clip(start, 0.0, 1.0), np.clip(end, 0.0, 1.0)
    here = profile[np.minimum((start * len(profile)).astype(int), len(profile) - 1)]
    # A kernel far shorter than a part: the difference of two integrals would be rounding alone.
    short = end - start < 1e-9
    mean = (np.interp(end, edges, until) - np.interp(start, edges, until)) / np.where(short, 1.0, end - start)
    return np.asarray(np.where(short, here, mean))


def _unlikeness(times_s: Mapping[int, float], replayed: Mapping[int, Energy]) -> float:
    """Return how far a kernel's power may lie from the mean one, as a share of it."""
    found = _replayed_watts(times_s, replayed, replayed)
    return UNKNOWN_SHARE if found is None else found[1]


def _replayed_watts(
    times_s: Mapping[int, float], replayed: Mapping[int, Energy], indices: Iterable[int]
) -> tuple[float, float] | None:
    """Return the mean power of replayed kernels, and its spread as a share, both weighted by time."""
    pairs = [(times_s[i], replayed[i].joules) for i in indices if times_s.get(i, 0.0) > 0.0]
    total_s, total_j = sum(time_s for time_s, _ in pairs), sum(joules for _, joules in pairs)
    if not pairs or not (math.isfinite(total_j) and total_j > 0.0):
        return None
    mean_w = total_j / total_s
    unlike = [(joules / time_s / mean_w - 1.0, time_s / total_s) for time_s, joules in pairs]
    share = CONFIDENCE_SIGMAS * math.sqrt(sum(each * each * weight for each, weight in unlike))
    return (mean_w, max(REPLAYED_SHARE, share)) if math.isfinite(mean_w) and math.isfinite(share) else None


def _lend(mean_w: float, share: float, time_s: float, source: Source) -> Energy | None:
    joules = mean_w * time_s
    return to_energy(joules, max(0.0, joules * (1.0 - share)), joules * (1.0 + share), source)


def _power_limit(run: Run, domain: str) -> float:
    states = () if run.measurement is None else run.measurement.states
    limits = [s.power_limit_w for s in states if s.domain == domain and s.power_limit_w is not None]
    return BURST * limits[-1] if limits and limits[-1] > 0.0 else math.inf


def _metered(run: Run, domain: str) -> DomainEnergy | None:
    return None if run.measurement is None else run.measurement.domains.get(domain)


def _source(run: Run, domain: str) -> Source:
    metered = _metered(run, domain)
    return "estimated" if metered is not None and metered.energy.source == "estimated" else "attributed"
