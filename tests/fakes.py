"""A fake device that knows its exact energy, imperfect sensors that read it, and work that loads it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from joulediff.measuring.meters.meter import Meter
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterFailed
from joulediff.model.measurement import Domain, Reading

GPU = Domain(
    name="gpu0",
    kind="power",
    device="a scripted card",
    key="scripted/gpu0",
    period_s=0.02,
    resolution_j=1e-6,
    repeat_share=0.002,
    window_s=0.5,
    settle_s=0.2,
)


def counter_domain(period_s, *, unit_j=1e-3, wrap_j=None, **changes):
    return replace(GPU, kind="counter", period_s=period_s, resolution_j=unit_j, wrap_j=wrap_j, **changes)


class PowerCurve:
    """Power that is linear between knots: its integral is exact."""

    def __init__(self, time_s, power_w):
        self.time_s = np.asarray(time_s, dtype=float)
        self.power_w = np.asarray(power_w, dtype=float)
        steps_j = np.diff(self.time_s) * (self.power_w[1:] + self.power_w[:-1]) / 2
        self._energy_j = np.concatenate([[0.0], np.cumsum(steps_j)])

    def at(self, time_s):
        return np.interp(time_s, self.time_s, self.power_w)

    def energy(self, time_s):
        """Return the exact energy since the first knot."""
        time_s = np.asarray(time_s, dtype=float)
        index = np.clip(np.searchsorted(self.time_s, time_s, side="right") - 1, 0, len(self.time_s) - 2)
        into_s = time_s - self.time_s[index]
        return self._energy_j[index] + into_s * (self.power_w[index] + self.at(time_s)) / 2

    def between(self, start_s, end_s):
        return float(self.energy(end_s) - self.energy(start_s))


def power_readings(curve, stamps_s, *, name="gpu0"):
    return [Reading(name, "power", float(t), float(curve.at(t))) for t in stamps_s]


def counter_readings(curve, ticks_s, reads_s, *, unit_j=1e-3, wrap_j=None, call_s=0.0, name="gpu0", start_j=0.0):
    """Return the readings of a counter that ticks at `ticks_s` and is read at `reads_s`; a read takes `call_s`."""
    ticks_s = np.asarray(ticks_s)
    found = []
    for end_s in reads_s:
        tick = np.searchsorted(ticks_s, end_s - call_s / 2, side="right") - 1
        joules = start_j + (float(curve.energy(ticks_s[tick])) if tick >= 0 else 0.0)
        shown_j = np.floor(joules / unit_j) * unit_j
        found.append(Reading(name, "counter", float(end_s), shown_j % wrap_j if wrap_j else shown_j, call_s))
    return found


class FakeDevice:
    """A device whose power depends on the work that runs, and that knows its exact energy."""

    def __init__(self, clock: FakeClock, *, idle_w=100.0):
        self.clock, self.idle_w = clock, idle_w
        self._time_s, self._power_w, self._energy_j = [clock.now()], [idle_w], [0.0]

    def set(self, power_w):
        now_s = self.clock.now()
        self._energy_j.append(self.energy_at(now_s))
        self._time_s.append(now_s)
        self._power_w.append(power_w)

    def _index(self, at_s):
        return max(0, bisect_left(self._time_s, at_s) - 1)

    def power_at(self, at_s):
        return self._power_w[self._index(at_s)]

    def energy_at(self, at_s):
        index = self._index(at_s)
        return self._energy_j[index] + (at_s - self._time_s[index]) * self._power_w[index]


class DeviceMeter(Meter):
    """Reads a `FakeDevice` through one or more imperfect sensors."""

    name = "fake"

    def __init__(
        self,
        device,
        domains,
        *,
        poll_s=0.05,
        seed=0,
        jitter=0.0,
        drop=0.0,
        dies_at_s=None,
        gain=None,
        states=(),
        clocks=None,
    ):
        self.device, self.domains, self.poll_s = device, tuple(domains), poll_s
        self._clock = device.clock
        self._rng = np.random.default_rng(seed)
        self._jitter, self._drop, self._dies_at_s = jitter, drop, dies_at_s
        self._next_s = {(d.name, d.kind): self._clock.now() for d in domains}
        self._tick_s = {(d.name, d.kind): self._clock.now() for d in domains}
        self.gain = gain or {}
        self.resets_at_s = None
        self._states = list(states)
        self._read_clocks = clocks or dict
        self.closed = False

    def poll(self):
        if self._dies_at_s is not None and self._clock.now() >= self._dies_at_s:
            raise MeterFailed("the fake meter was unplugged")
        first = {d.name: d for d in reversed(self.domains)}
        return [r for d in first.values() for r in self._read(d)]

    def check_readings(self):
        first = {d.name: d for d in reversed(self.domains)}
        return [r for d in self.domains if first[d.name] is not d for r in self._read(d)]

    def _read(self, domain):
        return self._count(domain) if domain.kind == "counter" else self._sample(domain)

    def _count(self, domain):
        now_s, key = self._clock.now(), (domain.name, domain.kind)
        while self._tick_s[key] + domain.period_s <= now_s:
            self._tick_s[key] += domain.period_s
        joules = self.device.energy_at(self._tick_s[key]) * self.gain.get(domain.kind, 1.0)
        if self.resets_at_s is not None and now_s >= self.resets_at_s:
            joules -= self.device.energy_at(self.resets_at_s)
        shown_j = np.floor(joules / domain.resolution_j) * domain.resolution_j
        return [Reading(domain.name, "counter", now_s, shown_j % domain.wrap_j if domain.wrap_j else shown_j)]

    def _sample(self, domain):
        new, key = [], (domain.name, domain.kind)
        while self._next_s[key] <= self._clock.now():
            stamp_s = self._next_s[key]
            if self._rng.random() >= self._drop:
                new.append(Reading(domain.name, "power", stamp_s, self.device.power_at(stamp_s)))
            self._next_s[key] += domain.period_s * (1 + self._rng.uniform(-self._jitter, self._jitter))
        return new

    def states(self):
        return list(self._states)

    def clocks(self):
        return self._read_clocks()

    def close(self):
        self.closed = True


class FakeWork:
    """A step that takes `step_s` of fake time and `busy_w` (or `busy_w(call)`) of a device."""

    def __init__(self, device: FakeDevice, step_s, busy_w=500.0, *, fails_at=None, error=None):
        self.device, self.step_s, self.busy_w, self.calls = device, step_s, busy_w, 0
        self.fails_at, self.error = fails_at, error or ValueError("no more")

    def __call__(self):
        self.calls += 1
        if self.calls == self.fails_at:
            self.device.set(self.device.idle_w)
            raise self.error
        self.device.set(self.busy_w(self.calls) if callable(self.busy_w) else self.busy_w)
        self.device.clock.advance(self.step_s)
        self.device.set(self.device.idle_w)
        return self.calls
