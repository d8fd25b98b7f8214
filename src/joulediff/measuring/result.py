"""Assemble a measurement from windows and readings, and judge whether it can be trusted.

Estimated energy is never added to metered energy, and a domain that covers others is never added to them: the total
counts each joule once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from joulediff.measuring.energy_curve import GAP_PERIODS, Curve
from joulediff.measuring.loop import Stretches, Windows
from joulediff.measuring.repeater import StepLog
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.windows import StepEnergy, joules_per_step, unseen_per_step
from joulediff.model.energy import Energy, Source, add_common, mean, subtract
from joulediff.model.errors import JoulediffError, MeterFailed, NotCovered
from joulediff.model.measurement import Condition, DeviceState, Domain, DomainEnergy, IdlePower, Measurement, Quiet
from joulediff.model.stats import CONFIDENCE_SIGMAS
from joulediff.model.units import format_power, format_share

# With a larger half width, a difference of 5 %, the smallest that `diff` reports, would be within noise.
LIMIT_SHARE = 0.05
# Counter and samples of an H200 agree within 0.3 % (tests/measuring/test_golden_h200.py); beyond this, one of them is
# wrong.
CHECK_LIMIT_SHARE = 0.03


def make_measurement(
    *,
    label: str,
    sampler: Sampler,
    windows: Windows,
    quiet: Quiet,
    precision: float | None,
    conditions: Sequence[Condition] = (),
) -> Measurement:
    """Return the energy per step over all windows, with a warning for each reason not to trust it."""
    log, stretches, states = windows.log, windows.stretches, windows.states_after
    steps, measured_s = _work_done(log, stretches)
    step_s = measured_s / steps
    capped = {state.domain for state in states if state.at_power_limit}
    domains, problems = _measure_domains(sampler, log, stretches, quiet, capped)
    problems += [f"meter {name}: {error.what}" for name, error in sampler.failures.items()]
    domains = count_domains(domains, sampler.primary_domains())
    # The errors of different domains are not known to be independent, so they add up.
    energy = add_common(d.energy for d in domains.values() if d.counted)
    if energy is None:
        raise MeterFailed(
            "no meter gave a number: " + "; ".join(problems), fix="`joulediff doctor` shows what works here"
        )
    nets = [d.net_energy for d in domains.values() if d.counted]
    problems += _compare_sensors(sampler)
    resting = {name for name, d in domains.items() if d.rested}
    problems += [c.advice or c.value for c in (*quiet.conditions, *conditions) if not c.ok and c.domain not in resting]
    wide = _too_wide(energy, precision, measured_s, floor_share(sampler, domains))
    is_only_wide = not problems
    problems += wide
    return Measurement(
        label=label,
        step_s=step_s,
        repeats=sum(len(edges) - 1 for edges in stretches),
        steps=round(steps),
        energy=energy,
        net_energy=add_common(n for n in nets if n is not None) if all(nets) else None,
        domains=domains,
        trustworthy=not problems,
        warnings=tuple(dict.fromkeys([*problems, *_remarks(domains, states)])),
        conditions=(*quiet.conditions, *conditions),
        states=tuple(states),
        sampling_share=sampler.cpu_share,
        clocks_mhz=windows.mean_clocks_mhz,
        cpu_s=windows.cpu_per_step_s,
        minor_faults=windows.minor_faults_per_step,
        major_faults=windows.major_faults_per_step,
        profiles=_profiles(sampler, log, stretches, domains, step_s),
        wide=wide[0] if wide and is_only_wide else None,
    )


def floor_share(sampler: Sampler, domains: Mapping[str, DomainEnergy]) -> float:
    """Return the smallest half width that more time can reach: the spread between runs of the counted domains."""
    counted = [d for d in sampler.primary_domains() if d.name in domains and domains[d.name].counted]
    return max(CONFIDENCE_SIGMAS * d.repeat_share for d in counted)


def _work_done(log: StepLog, stretches: Stretches) -> tuple[float, float]:
    """Return the steps that ran in the windows, and the seconds these took."""
    steps = seconds = 0.0
    for edges_s in stretches:
        marks = log.marks_around(edges_s[0], edges_s[-1])
        if marks is not None:
            steps += log.steps_between(*marks)
            seconds += marks[1] - marks[0]
    if not steps:
        raise JoulediffError("no step was finished while measuring", fix="give it more time with --seconds")
    return steps, seconds


def _measure_domains(
    sampler: Sampler, log: StepLog, stretches: Stretches, quiet: Quiet, capped: set[str]
) -> tuple[dict[str, DomainEnergy], list[str]]:
    found: dict[str, DomainEnergy] = {}
    problems = []
    for domain in sampler.primary_domains():
        try:
            per_step = _joules(sampler, domain, log, stretches, capped=domain.name in capped)
        except JoulediffError as error:
            problems.append(error.what)
            continue
        found[domain.name] = _domain_energy(domain, per_step, quiet.idle.get(domain.name))
        lost_s = stretches[-1][-1] - per_step.end_s
        if lost_s > 0:
            problems.append(f"{domain.name} has no readings of the last {lost_s:.1f} s: measure again")
    return found, problems


def _profiles(
    sampler: Sampler, log: StepLog, stretches: Stretches, measured: Mapping[str, DomainEnergy], step_s: float
) -> dict[str, tuple[float, ...]]:
    found = {}
    for domain in sampler.primary_domains():
        if domain.kind != "power" or domain.name not in measured:
            continue
        energy_j = measured[domain.name].energy.joules
        profile = fold(sampler.curve(domain), log, stretches, step_s=step_s, energy_j=energy_j)
        if profile is not None:
            found[domain.name] = profile
    return found


def _joules(sampler: Sampler, domain: Domain, log: StepLog, stretches: Stretches, *, capped: bool) -> StepEnergy:
    try:
        return joules_per_step(sampler.curve(domain), log, stretches, capped=capped)
    except NotCovered:
        if not all(sampler.stood_still(domain, edges[0], edges[-1]) for edges in stretches):
            raise
        steps, seconds = _work_done(log, stretches)
        return unseen_per_step(domain, steps, seconds, stretches[-1][-1])


def _domain_energy(domain: Domain, per_step: StepEnergy, idle: IdlePower | None) -> DomainEnergy:
    rest = None if idle is None else idle.over(per_step.step_s, domain.source)
    return DomainEnergy(
        energy=per_step.energy.not_negative(),
        net_energy=None if rest is None else subtract(per_step.energy, [rest]),
        power_w=per_step.power_w,
        idle=idle,
        kind=domain.kind,
        device=domain.device,
        counted=True,
        note=domain.note,
    )


def count_domains(measured: Mapping[str, DomainEnergy], domains: Sequence[Domain]) -> dict[str, DomainEnergy]:
    """Mark the domains that are counted in the total."""
    there = [d for d in domains if d.name in measured]
    candidates = [d for d in there if d.source == "metered"] or there
    parts = [d for d in candidates if not d.whole] or candidates[:1]
    resting = _resting_gpus({d.name: measured[d.name] for d in parts})
    names = {d.name for d in parts} - resting
    return {name: replace(energy, counted=name in names, rested=name in resting) for name, energy in measured.items()}


def _resting_gpus(parts: Mapping[str, DomainEnergy]) -> set[str]:
    """Return the GPUs whose power does not differ from idle while another GPU works: the program does not use them."""
    cards = {name: d.net_energy for name, d in parts.items() if name.startswith("gpu") and d.net_energy is not None}
    resting = {name for name, net in cards.items() if not net.is_surely_positive}
    return resting if len(resting) < len(cards) else set()


def _compare_sensors(sampler: Sampler) -> list[str]:
    """Compare the energy of each second sensor with that of the first over the measured time."""
    found = []
    primary = {domain.name: domain for domain in sampler.primary_domains()}
    for domain in sampler.check_domains():
        readings = sampler.readings(domain)[-2:]
        if len(readings) < 2:
            continue
        first, last = readings
        late_s = 1.1 * domain.period_s
        try:
            curve = sampler.curve(primary[domain.name])
            least = curve.between(first.time_s, last.time_s - last.within_s - late_s)
            most = curve.between(first.time_s - first.within_s - late_s, last.time_s)
        except JoulediffError:
            continue  # too short or not covered: there is nothing to compare
        counted_j = last.value - first.value
        slack = 1 + CHECK_LIMIT_SHARE
        least_j, most_j = least.energy.joules, most.energy.joules
        if not least_j / slack <= counted_j <= most_j * slack:
            by_samples = f"its power samples {least_j:.1f} to {most_j:.1f} J"
            found.append(f"{domain.name}: its counter says {counted_j:.1f} J, {by_samples}; measure again")
    return found


def _too_wide(energy: Energy, precision: float | None, spent_s: float, floor: float) -> list[str]:
    limit = precision or LIMIT_SHARE
    if energy.half_width_share <= limit:
        return []
    advice = "give it more time (--seconds) or a quieter machine"
    if precision is not None:
        advice += ", or a wider --precision"
    if limit <= floor:
        advice = f"the same work differs by ±{format_share(floor)} from run to run here, so more time does not help"
    wide = f"the interval is ±{format_share(energy.half_width_share)} after {spent_s:.1f} s"
    return [f"{wide}, wider than {format_share(limit)}: {advice}"]


def _remarks(domains: Mapping[str, DomainEnergy], states: Sequence[DeviceState]) -> list[str]:
    found = []
    for state in states:
        if state.at_power_limit:
            limit = f" of {format_power(state.power_limit_w)}" if state.power_limit_w else ""
            clock = f", its clock at {state.clock_mhz:.0f} MHz" if state.clock_mhz else ""
            found.append(f"{state.domain} ran at its power limit{limit}{clock}: joules per step depend on that limit")
    for name, domain in domains.items():
        remark = remark_on(name, source=domain.energy.source, counted=domain.counted, note=domain.note)
        if remark is not None:
            found.append(remark)
        is_idle = domain.net_energy is not None and not domain.net_energy.is_surely_positive
        if is_idle and domain.counted and not domain.energy.is_zero:
            found.append(f"the power of {name} at work does not differ from idle: give it more time (--seconds)")
    return found


def remark_on(name: str, *, source: Source, counted: bool, note: str | None) -> str | None:
    """Return a sentence on a domain that is only estimated, or whose meter has a note."""
    if source == "estimated":
        left_out = "" if counted else "; not in the total"
        return f"{name} is estimated, not measured ({note}){left_out}"
    return f"{name}: {note}" if note else None


# A profile with fewer parts says little more than its mean.
LEAST_PARTS = 10
# Limits the size of a manifest.
MAX_PARTS = 200


def fold(
    curve: Curve, log: StepLog, stretches: Stretches, *, step_s: float, energy_j: float
) -> tuple[float, ...] | None:
    """Return the watts in equal parts of a step of `step_s` and `energy_j`; None if the meter is too slow.

    There are as many parts as the meter has samples in a step. Steps with lost samples are left out.
    """
    parts = min(MAX_PARTS, int(step_s / curve.domain.period_s))
    if curve.domain.kind != "power" or parts < LEAST_PARTS:
        return None
    steps = [s for edges_s in stretches for s in _steps(log, edges_s[0], edges_s[-1]) if _is_covered(curve, *s)]
    if not steps:
        return None
    start_s, end_s = np.array(steps).T[:, :, np.newaxis]
    at_s = start_s + (end_s - start_s) * np.linspace(0.0, 1.0, parts + 1)
    part_j = np.diff(curve.energy_at(at_s)).sum(axis=0)
    total_j = float(part_j.sum())
    if total_j <= 0:
        return None
    return tuple((part_j / total_j * parts * energy_j / step_s).tolist())


def _steps(log: StepLog, start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    """Yield the begin and the end of each step between two moments that has its own mark."""
    first, last = (bisect_right(log.time_s, edge_s) - 1 for edge_s in (start_s, end_s))
    for mark in range(max(first, 0), last):
        if log.steps[mark + 1] - log.steps[mark] == 1:
            yield log.time_s[mark], log.time_s[mark + 1]


def _is_covered(curve: Curve, start_s: float, end_s: float) -> bool:
    first = int(np.searchsorted(curve.time_s, start_s, side="right")) - 1
    last = int(np.searchsorted(curve.time_s, end_s, side="left"))
    if first < 0 or last >= len(curve.time_s):
        return False
    return bool(np.diff(curve.time_s[first : last + 1]).max() <= GAP_PERIODS * curve.domain.period_s)


def combine(first: Measurement, second: Measurement) -> Measurement:
    """Return the mean of two measurements of the same step, taken at different times."""
    names = first.domains.keys() & second.domains.keys()
    energy = _mean(first.energy, second.energy)
    # The interval of both turns together counts, not that of each.
    is_sound = all(each.trustworthy or each.wide is not None for each in (first, second))
    spent_s = first.steps * first.step_s + second.steps * second.step_s
    was_wide = first.wide is not None or second.wide is not None
    wide = _too_wide(energy, None, spent_s, 0.0) if is_sound and was_wide else []
    warnings = [text for each in (first, second) for text in each.warnings if text != each.wide]
    return replace(
        first,
        step_s=(first.step_s + second.step_s) / 2,
        repeats=first.repeats + second.repeats,
        steps=first.steps + second.steps,
        energy=energy,
        net_energy=_mean_or_none(first.net_energy, second.net_energy),
        domains={name: _domain(first.domains[name], second.domains.get(name)) for name in first.domains},
        trustworthy=is_sound and not wide and names == first.domains.keys(),
        warnings=tuple(dict.fromkeys((*wide, *warnings))),
        wide=wide[0] if wide else None,
        sampling_share=(first.sampling_share + second.sampling_share) / 2,
        clocks_mhz={
            name: (clock_mhz + second.clocks_mhz.get(name, clock_mhz)) / 2
            for name, clock_mhz in first.clocks_mhz.items()
        },
        conditions=_both(first.conditions, second.conditions),
        cpu_s=_middle(first.cpu_s, second.cpu_s),
        minor_faults=_middle(first.minor_faults, second.minor_faults),
        major_faults=_middle(first.major_faults, second.major_faults),
    )


def _both(first: Sequence[Condition], second: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return the conditions of both measurements; of one that was checked twice, the check that failed."""
    found = {(each.name, each.domain): each for each in first}
    for each in second:
        known = found.get((each.name, each.domain))
        if known is None or (known.ok and not each.ok):
            found[each.name, each.domain] = each
    return tuple(found.values())


def _middle(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else (first + second) / 2


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
    found = mean(first, second)
    if found is None:
        raise MeterFailed("the mean of two measurements is not finite", fix="measure again")
    return found


def _mean_or_none(first: Energy | None, second: Energy | None) -> Energy | None:
    return None if first is None or second is None else mean(first, second)
