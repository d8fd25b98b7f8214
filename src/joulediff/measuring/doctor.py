"""Find the meters of this machine and their properties, and judge whether the machine is quiet.

The properties are measured by polling each sensor for a second, and stored for the next measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from joulediff.measuring.idle import wait_until_quiet
from joulediff.measuring.meters import FILE_METERS, METER_NAMES, MeterSet, open_meters
from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import Checkup, Condition, Domain, Learned, MeterReport, Quiet, Reading
from joulediff.model.options import DOCTOR_OPTIONS
from joulediff.model.progress import ProgressListener

_NOTHING = "no energy can be measured on this machine"


def check_machine(
    *,
    meter: str = DOCTOR_OPTIONS.meter,
    wait_s: float = DOCTOR_OPTIONS.wait_s,
    cpu_watts: float | None = DOCTOR_OPTIONS.cpu_watts,
    clock_offset_s: float = DOCTOR_OPTIONS.clock_offset_s,
    cache: SensorCache | None = None,
    clock: Clock | None = None,
    listener: ProgressListener | None = None,
) -> Checkup:
    """Return every meter with its properties here, whether the machine is quiet, and one verdict."""
    clock, listener, cache = clock or RealClock(), listener or ProgressListener(), cache or SensorCache()
    reports = []
    names = METER_NAMES if meter == "auto" else tuple(filter(None, (part.strip() for part in meter.split(","))))
    for index, name in enumerate(names):
        listener.stage(f"watching {name}", index / (len(names) + 1))
        reports.append(_examine(name, clock, cpu_watts, clock_offset_s))
    learned = [each for report in reports for each in report.learned]
    cache.store(learned)
    listener.stage("looking for a quiet second", len(names) / (len(names) + 1))
    try:
        with open_meters(meter, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s, cache=cache) as opened:
            quiet = _rest(opened, clock, wait_s, listener)
    except MeterUnavailable as error:
        quiet = Quiet(False, (Condition("meters", False, error.what, advice=error.what),), {})
        there = any(report.available for report in reports)
        verdict = "some of the requested meters are not available" if there else _NOTHING
        return Checkup(tuple(reports), quiet, verdict, 1, quiet.advice)
    return _judge(reports, quiet, cache)


def _examine(spec: str, clock: Clock, cpu_watts: float | None, clock_offset_s: float) -> MeterReport:
    name, _, argument = spec.partition(":")
    if name in FILE_METERS and not argument:
        return MeterReport(name, False, reason="reads a file", fix=f"joulediff measure FILE.py --meter {name}:FILE")
    try:
        with open_meters(spec, clock=clock, cpu_watts=cpu_watts, clock_offset_s=clock_offset_s) as opened:
            meter = opened.meters[0]
            learned = probe(meter, clock=clock, seconds=PROBE_S)
            return MeterReport(name, True, _as_found(meter.domains, learned), tuple(learned))
    except MeterUnavailable as error:
        return MeterReport(name, False, reason=error.what, fix=error.fix)


def _as_found(domains: Sequence[Domain], learned: Sequence[Learned]) -> tuple[Domain, ...]:
    found = {each.key: each for each in learned}
    return tuple(
        replace(d, period_s=found[d.key].period_s, resolution_j=found[d.key].resolution_j)
        if d.key in found and d.source == "metered"
        else d
        for d in domains
    )


def _rest(opened: MeterSet, clock: Clock, wait_s: float, listener: ProgressListener) -> Quiet:
    with Sampler(opened.meters, clock=clock) as sampler:
        return wait_until_quiet(sampler, clock=clock, wait_s=wait_s, listener=listener)


def _judge(reports: Sequence[MeterReport], quiet: Quiet, cache: SensorCache) -> Checkup:
    metered = [d.name for r in reports for d in r.domains if d.source == "metered"]
    estimated = [d.name for r in reports for d in r.domains if d.source == "estimated" and d.name not in metered]
    advice = [*quiet.advice, *([cache.problem] if cache.problem else [])]
    metered, estimated = list(dict.fromkeys(metered)), list(dict.fromkeys(estimated))
    if not metered and not estimated:
        return Checkup(tuple(reports), quiet, _NOTHING, 1, tuple(advice))
    can = f"measures {', '.join(metered)}" if metered else "has no energy sensor"
    also = f" ({', '.join(estimated)} {'is' if len(estimated) == 1 else 'are'} estimated)" if estimated else ""
    rest = "and is quiet" if quiet.quiet else "but is not quiet" if metered else "and is not quiet"
    code = 0 if metered and quiet.quiet else 2
    return Checkup(tuple(reports), quiet, f"this machine {can}{also} {rest}", code, tuple(advice))


PROBE_S = 1.0
# Seconds between two polls; a sensor with a new value at every poll is at least this fast.
LOOK_S = 0.001
MIN_CHANGES = 3
MICROJOULE = 1e-6


def probe(meter: Meter, *, clock: Clock, seconds: float = PROBE_S) -> list[Learned]:
    """Return the measured properties of each domain of `meter`, after about `seconds` for each of its sensors.

    A sensor that shows too few changes is left out.
    """
    found = _watch(meter, meter.poll, clock, seconds)
    if meter.check_readings():
        found += _watch(meter, meter.check_readings, clock, seconds)
    return found


def _watch(meter: Meter, look: Callable[[], list[Reading]], clock: Clock, seconds: float) -> list[Learned]:
    readings: dict[tuple[str, str], list[Reading]] = {}
    looks, wall_s, cpu_s = 0, 0.0, 0.0
    end_s = clock.now() + seconds
    while clock.now() < end_s:
        start_s, start_cpu_s = clock.now(), time.thread_time()
        try:
            new = look()
        except MeterFailed:
            break
        wall_s += clock.now() - start_s
        cpu_s += time.thread_time() - start_cpu_s
        looks += 1
        for reading in new:
            readings.setdefault((reading.domain, reading.kind), []).append(reading)
        clock.sleep(LOOK_S)
    learned = []
    for domain in meter.domains:
        seen = _learn(domain, readings.get((domain.name, domain.kind), []))
        if seen is not None:
            period_s, resolution_j = seen
            pace_s = max(meter.poll_s, LOOK_S)
            learned.append(Learned(domain.key, period_s, resolution_j, wall_s / looks, cpu_s / looks / pace_s))
    return learned


def _learn(domain: Domain, readings: Sequence[Reading]) -> tuple[float, float] | None:
    time_s = np.array([r.time_s for r in readings])
    value = np.array([r.value for r in readings])
    changed = np.flatnonzero(np.diff(value) != 0) + 1
    if len(changed) < MIN_CHANGES:
        return None
    buffered = domain.kind == "power" and bool((np.array([r.within_s for r in readings]) == 0).all())
    # Buffered samples have their own time stamps; any other reading is new when its value changes.
    period_s = float(np.median(np.diff(time_s if buffered else time_s[changed])))
    steps = np.abs(np.diff(value))[changed - 1]
    if domain.kind == "power":
        return period_s, float(steps.min()) * period_s
    # A tick adds many units at once: the unit is their greatest common divisor. No counter is finer than a
    # microjoule, which a float still resolves in a counter that has run for years.
    return period_s, max(1, int(np.gcd.reduce(np.rint(steps / MICROJOULE).astype(np.int64)))) * MICROJOULE
