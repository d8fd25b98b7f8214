"""Two measurements of one program as one: what changed between them is part of the interval."""

from __future__ import annotations

import math
from dataclasses import replace

from joulediff.records import DomainEnergy, Energy, Measurement


def combine(first: Measurement, second: Measurement) -> Measurement:
    """Return the mean of two measurements of the same step, taken at different times."""
    names = first.domains.keys() & second.domains.keys()
    cpu_s = None if first.cpu_s is None or second.cpu_s is None else (first.cpu_s + second.cpu_s) / 2
    return replace(
        first,
        step_s=(first.step_s + second.step_s) / 2,
        repeats=first.repeats + second.repeats,
        steps=first.steps + second.steps,
        energy=_mean(first.energy, second.energy),
        net_energy=_mean_or_none(first.net_energy, second.net_energy),
        domains={name: _domain(first.domains[name], second.domains.get(name)) for name in first.domains},
        trustworthy=first.trustworthy and second.trustworthy and names == first.domains.keys(),
        warnings=tuple(dict.fromkeys((*first.warnings, *second.warnings))),
        sampling_share=(first.sampling_share + second.sampling_share) / 2,
        clocks_mhz={
            name: (clock_mhz + second.clocks_mhz.get(name, clock_mhz)) / 2
            for name, clock_mhz in first.clocks_mhz.items()
        },
        cpu_s=cpu_s,
    )


def _domain(first: DomainEnergy, second: DomainEnergy | None) -> DomainEnergy:
    if second is None:
        return first
    return replace(
        first,
        energy=_mean(first.energy, second.energy),
        net_energy=_mean_or_none(first.net_energy, second.net_energy),
        power_w=(first.power_w + second.power_w) / 2,
    )


def _mean(first: Energy, second: Energy) -> Energy:
    """Return the mean; half the distance between the two is its spread (one sigma), as far as two values tell."""
    joules = (first.joules + second.joules) / 2
    apart = abs(first.joules - second.joules)
    below = math.hypot(math.hypot(first.joules - first.low, second.joules - second.low) / 2, apart)
    above = math.hypot(math.hypot(first.high - first.joules, second.high - second.joules) / 2, apart)
    return Energy(joules, joules - below, joules + above, first.source)


def _mean_or_none(first: Energy | None, second: Energy | None) -> Energy | None:
    return None if first is None or second is None else _mean(first, second)
