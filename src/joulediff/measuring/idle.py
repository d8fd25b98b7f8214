"""Wait for a quiet machine, and take its idle power from the same window that was judged quiet.

Idle power from any other window can make net energies negative. The wait is bounded: a verdict follows in any case.
"""

from __future__ import annotations

import numpy as np

from joulediff.measuring.conditions import judge_devices
from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.host_use import judge_cpu, judge_host, read_cpu_use
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.sampler import Sampler
from joulediff.model.errors import JoulediffError, NotCovered
from joulediff.model.measurement import Condition, Domain, IdlePower, Quiet
from joulediff.model.options import MeasureOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.stats import half_width

# 50 samples of an H200, 10 ticks of a 100 ms counter.
WINDOW_S = 1.0
WINDOW_PERIODS = 10
SLICES = 10
# The readings must cover at least this share of the window.
COVERED_SHARE = 0.6
# One sigma of the slices' power: 0.1 % for an idle H200 (`joulediff doctor`), several % while it still settles.
SPREAD_LIMIT = 0.03
# The spread of an idle power below this is not judged.
NEGLIGIBLE_W = 1.0


def wait_until_quiet(
    sampler: Sampler,
    *,
    clock: Clock,
    wait_s: float = MeasureOptions.wait_s,
    listener: ProgressListener | None = None,
    look_at_cpu: bool = True,
) -> Quiet:
    """Return the verdict on this machine: of the first quiet window, or of the last one in `wait_s`.

    `look_at_cpu` is False if no domain includes other programs' CPU work.
    """
    listener = listener or ProgressListener()
    begin_s = clock.now()
    window_s = max([WINDOW_S, *(WINDOW_PERIODS * d.period_s for d in sampler.primary_domains())])
    clock.sleep(max([0.0, *(d.settle_s for d in sampler.primary_domains())]))
    while True:
        verdict = _judge_window(sampler, clock, window_s, begin_s, look_at_cpu=look_at_cpu)
        left_s = wait_s - (clock.now() - begin_s)
        if verdict.quiet or not left_s > 0 or len(sampler.failures) == sampler.meter_count:
            return verdict
        listener.stage("waiting for a quiet machine: " + verdict.advice[0], min(1.0, 1 - left_s / max(wait_s, 1e-9)))


def wait_for_rest(sampler: Sampler, *, clock: Clock, wait_s: float, listener: ProgressListener | None = None) -> Quiet:
    """Return the verdict on this machine; other programs' CPU work counts only where a domain includes it."""
    # It is in the energy of a package and of a wall plug, not in a GPU's or an estimate.
    sees_cpu = any(d.source == "metered" and not d.name.startswith("gpu") for d in sampler.primary_domains())
    return wait_until_quiet(sampler, clock=clock, wait_s=wait_s, listener=listener, look_at_cpu=sees_cpu)


def _judge_window(sampler: Sampler, clock: Clock, window_s: float, begin_s: float, *, look_at_cpu: bool) -> Quiet:
    sampler.edge()
    start_s, states, cpu = clock.now(), sampler.states(), read_cpu_use()
    clock.sleep(window_s)
    sampler.edge()
    end_s, states_after, cpu_after = clock.now(), sampler.states(), read_cpu_use()
    sampler.catch_up(end_s)
    conditions = [*judge_devices(states, states_after, idle=True), judge_host(cpu, cpu_after, end_s - start_s)]
    if look_at_cpu:
        conditions.append(judge_cpu(cpu, cpu_after, end_s - start_s))
    conditions += [
        Condition("meter", False, error.what, advice=f"meter {name}: {error.what}")
        for name, error in sampler.failures.items()
    ]
    idle = {}
    for domain in sampler.primary_domains():
        try:
            idle[domain.name] = idle_power(sampler, domain, start_s, end_s)
        except JoulediffError as error:
            conditions.append(Condition("idle power", False, error.what, domain.name, error.what))
            continue
        conditions.append(_steadiness(domain, idle[domain.name]))
    return Quiet(all(c.ok for c in conditions), tuple(conditions), idle, tuple(states_after), clock.now() - begin_s)


def idle_power(sampler: Sampler, domain: Domain, start_s: float, end_s: float) -> IdlePower:
    """Return a domain's power in a window, with its interval and spread."""
    try:
        curve = sampler.curve(domain)
        window = curve.window(start_s, end_s)
    except NotCovered:
        if not sampler.stood_still(domain, start_s, end_s):
            raise
        limit_w = domain.resolution_j / (end_s - start_s)
        return IdlePower(limit_w / 2, 0.0, limit_w, 0.0, end_s - start_s)
    if window.duration_s < COVERED_SHARE * (end_s - start_s):
        raise NotCovered(f"{domain.name}: the readings cover only {window.duration_s:.2f} of {end_s - start_s:.2f} s")
    power_w = window.power_w
    slices_w = _slices(curve, window.start_s, window.end_s)
    timing_w = power_w * (window.start_err_s + window.end_err_s) / window.duration_s
    half_w = float(np.hypot(half_width(slices_w, known_sigma=0.0), timing_w))
    spread = float(np.std(slices_w)) / power_w if power_w else 0.0
    return IdlePower(power_w, power_w - half_w, power_w + half_w, spread, window.duration_s)


def _slices(curve: Curve, start_s: float, end_s: float) -> np.ndarray:
    edges_s = np.linspace(start_s, end_s, SLICES + 1)
    return np.asarray(np.diff(curve.energy_at(edges_s)) / np.diff(edges_s))


def _steadiness(domain: Domain, idle: IdlePower) -> Condition:
    return Condition(
        "idle power",
        idle.spread_share <= SPREAD_LIMIT or idle.power_w < NEGLIGIBLE_W,
        f"{idle.power_w:.1f} W ± {100 * idle.spread_share:.1f}%",
        domain.name,
        f"the idle power of {domain.name} varies by {100 * idle.spread_share:.0f}%: end other programs on it, or wait "
        "longer (--wait)",
    )
