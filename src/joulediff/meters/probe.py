"""Find out how good a sensor is by watching it: its period, its resolution, what a look costs.

Data sheets and other machines' figures are where a meter starts; this is where it ends up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from joulediff.errors import MeterFailed
from joulediff.meters.meter import Clock, Meter
from joulediff.records import Domain, Learned, Reading

PROBE_S = 1.0
# Between two looks; a sensor that is new at every look is at least this fast.
LOOK_S = 0.001
MIN_CHANGES = 3
MICROJOULE = 1e-6


def probe(meter: Meter, *, clock: Clock, seconds: float = PROBE_S) -> list[Learned]:
    """Return what was learned about each domain of `meter` in about `seconds`, twice that with two instruments.

    A sensor that shows too few changes teaches nothing and is left out.
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
    # Buffered samples carry their own stamps; anything else is new when its value is.
    period_s = float(np.median(np.diff(time_s if buffered else time_s[changed])))
    steps = np.abs(np.diff(value))[changed - 1]
    if domain.kind == "power":
        return period_s, float(steps.min()) * period_s
    # A tick adds many units at once: the unit is what divides them all. Nothing counts finer than
    # microjoules, and floats still tell these apart in a counter that has run for years.
    return period_s, max(1, int(np.gcd.reduce(np.rint(steps / MICROJOULE).astype(np.int64)))) * MICROJOULE
