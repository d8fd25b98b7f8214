"""Measure a load: bursts of one operator with rests between them, in every domain, and the clock meanwhile.

What counts is the energy above that of the resting device. It does not depend on how long the rests are or whether
the queue ran dry, as long as the clock stays: rest power × time is taken off whatever the time was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from joulediff.measuring.conditions import judge_devices
from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.meters.meter import Clock, Meter
from joulediff.measuring.repeater import Progress, Repeater
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.windows import PerStep, joules_per_step, mean_clocks
from joulediff.model.errors import JoulediffError, NotCovered
from joulediff.model.measurement import Condition, Domain

# Power samples of an H200 have settled on a new load after 60 to 80 ms; `warm_up` runs it for 50 ms before.
SETTLE_S = 0.04
# A window is cut into parts, whose spread tells how steady it was.
PART_S = 0.1
# An operator that draws next to nothing above rest is not known better than this many times itself.
MAX_AMPLIFICATION = 100.0
MIN_PARTS = 3
# What the meter did not cover is measured once more, for so many times as long.
AGAIN = 3
# A look at a load takes this long, after the 50 ms of its warm-up; what it shows last counts.
PROBE_S = 0.06
PROBE_PARTS = 4
PROBE_CLOCKS = 2
PROBE_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Shot:
    """What one measurement of a load said. Energy, above rest, and seconds are those of one call of it."""

    domains: dict[str, PerStep]
    clocks_mhz: dict[str, float]
    cpu_s: float
    bursts: float
    temperatures_c: dict[str, float]
    doubts: tuple[str, ...]


class BurstMeter:
    """The meters of a replay, and the clock."""

    def __init__(
        self, meters: Sequence[Meter], *, clock: Clock, cpu_s: Callable[[], float] = time.process_time
    ) -> None:
        self._meters = list(meters)
        self._clock = clock
        self._cpu_s = cpu_s

    def measure(self, run: Callable[[], None], rest_w: Mapping[str, float], *, window_s: float) -> Shot:
        """Return the energy of one call of `run` in each domain of `rest_w`, above the power that is given there.

        It is measured for `window_s`, or as long as a few calls take; once more if the meter covered none of them.
        """
        repeater = Repeater(run, clock=self._clock)
        with Sampler(self._meters, clock=self._clock) as sampler:
            wanted = {domain: rest_w[domain.name] for domain in sampler.primary_domains() if domain.name in rest_w}
            if not wanted:
                raise JoulediffError(f"no meter sees {' or '.join(rest_w)}")
            with _failures_told():
                try:
                    return self._measure(repeater, sampler, wanted, window_s)
                except NotCovered:  # a busy machine may have stopped all of it for that long
                    return self._measure(repeater, sampler, wanted, AGAIN * window_s)

    def probe(
        self, run: Callable[[], None], domain: str, *, seconds: float = PROBE_S
    ) -> tuple[float | None, float | None]:
        """Return about how many watts a load draws and at which clock; None where the meter is too slow to tell."""
        repeater = Repeater(run, clock=self._clock)
        with Sampler(self._meters, clock=self._clock) as sampler, _failures_told():
            repeater.warm_up()
            clocks = []
            for _ in range(PROBE_PARTS):
                repeater.run_until(self._clock.now() + seconds / PROBE_PARTS)
                clocks.append(sampler.clocks())
            sampler.edge()
            repeater.drain()
            found = next((d for d in sampler.primary_domains() if d.name == domain), None)
            readings = [] if found is None else sampler.readings(found)[-PROBE_SAMPLES:]
        clock_mhz = mean_clocks(clocks[-PROBE_CLOCKS:]).get(domain)
        if found is None or found.kind != "power" or not readings or found.period_s > seconds / PROBE_SAMPLES:
            return None, clock_mhz
        return sum(reading.value for reading in readings) / len(readings), clock_mhz

    def _measure(self, repeater: Repeater, sampler: Sampler, domains: Mapping[Domain, float], window_s: float) -> Shot:
        step_s = repeater.warm_up()
        parts = max(MIN_PARTS, round(window_s / PART_S))
        window_s = max(window_s, 2 * step_s, *(3 * parts * domain.period_s for domain in domains))
        repeater.run_until(self._clock.now() + max(SETTLE_S, *(min(d.settle_s, SETTLE_S) for d in domains)))
        before = sampler.states()
        edges_s, clocks = [self._edge(sampler)], [sampler.clocks()]
        cpu_s, spent_s = self._cpu_s(), 0.0
        for _ in range(parts):
            repeater.run_until(edges_s[-1] + window_s / parts)
            spent_s = self._cpu_s() - cpu_s
            edges_s.append(self._edge(sampler))
            clocks.append(sampler.clocks())
        states = sampler.states()
        repeater.drain()
        if any(meter.late_s for meter in self._meters):  # the others lack a period at most, and the window ends there
            sampler.catch_up(edges_s[-1])
        progress = repeater.progress
        bursts = float(progress.steps_at(edges_s[-1]) - progress.steps_at(edges_s[0]))
        per = {d.name: _above_rest(sampler.curve(d), progress, edges_s, rest_w) for d, rest_w in domains.items()}
        return Shot(
            domains=per,
            clocks_mhz=mean_clocks(clocks),
            cpu_s=spent_s / bursts if bursts else 0.0,
            bursts=bursts,
            temperatures_c={s.domain: s.temperature_c for s in states if s.temperature_c is not None},
            doubts=tuple(_doubts([c for s in (before, states) for c in judge_devices(s, s, idle=False)], domains)),
        )

    def _edge(self, sampler: Sampler) -> float:
        sampler.edge()
        return self._clock.now()


@contextmanager
def _failures_told() -> Iterator[None]:
    """Turn what a device raises, when its work is queued or waited for, into an error of this operator."""
    try:
        yield
    except RuntimeError as error:
        raise JoulediffError(f"it failed when run again: {str(error).partition(chr(10))[0][:200]}") from error


def _above_rest(curve: Curve, progress: Progress, edges_s: Sequence[float], rest_w: float) -> PerStep:
    """Return the energy of a call above rest, window by window: where the queue ran dry there is nothing above it."""
    gross = joules_per_step(curve, progress, [edges_s])
    if not rest_w:
        return gross
    net_j = gross.energy_j - rest_w * gross.step_s
    # What repeats, and what does not, is all of the power.
    share = curve.domain.repeat_share * min(MAX_AMPLIFICATION, abs(gross.energy_j / net_j) if net_j else math.inf)
    domain = replace(curve.domain, repeat_share=share)
    net = replace(curve, domain=domain, energy_j=curve.energy_j - rest_w * (curve.time_s - curve.time_s[0]))
    return joules_per_step(net, progress, [edges_s])


def _doubts(conditions: Sequence[Condition], domains: Iterable[Domain]) -> list[str]:
    names = {domain.name for domain in domains}
    return list(dict.fromkeys(c.advice or c.value for c in conditions if not c.ok and c.domain in names))
