"""Meters that all blocks of a process share: opened once, and read in the background while a block is open.

A block only notes its begin and its end. Its energy is computed later, from readings that enclose it, so that the
program does not wait for a meter.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from joulediff.measuring.blocks.stretch_energy import StretchEnergy, energy_in
from joulediff.measuring.energy_curve import STILL_PERIODS, TICK_JITTER, Curve, curve_from_start
from joulediff.measuring.meters import MeterSet, open_meters
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.result import count_domains
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.model.energy import Energy, add_common
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement, Domain, DomainEnergy
from joulediff.model.units import format_energy, format_si

# The meters are read for this long after the last block: the next call of a function finds them running.
LINGER_S = 1.0
# Energies are computed after this many stretches, to keep the list of them short.
MOST_STRETCHES = 1000
POLL_S = 0.002
MIN_POLL_S = 0.0002
# And after this time, which bounds the list of readings.
COMPUTE_S = 60.0


@dataclass(slots=True)
class Tally:
    """The time in which a block, or any call of a function, was open, and the energy that is computed so far."""

    name: str
    calls: int = 0
    open_s: float = 0.0
    shortest_s: float = float("inf")
    longest_s: float = 0.0
    cpu_s: float = 0.0
    open: int = 0
    since_s: float = 0.0
    since_cpu_s: float = 0.0
    stretches: list[tuple[float, float]] = field(default_factory=list)
    """Ended stretches whose energy is not computed yet."""
    energies: dict[Domain, StretchEnergy] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """Why energy is missing, by meter or domain."""


class _LingeringSampler(Sampler):
    """A sampler that stops itself when `is_over`, which is asked after each poll."""

    is_over: Callable[[], bool] | None = None

    def _beat(self) -> float:
        pause_s = super()._beat()
        if self.is_over is not None and self.is_over():
            self.__exit__(None, None, None)
        return pause_s


class SharedMeters:
    """Open meters, and the tallies of the blocks that they measure."""

    def __init__(self, meters: MeterSet, *, clock: Clock, read_cpu_s: Callable[[], float] = time.process_time) -> None:
        self._meters = meters
        self._clock = clock
        self._read_cpu_s = read_cpu_s
        self._lock = threading.RLock()
        self._sampler: _LingeringSampler | None = None
        self._open: list[Tally] = []
        self._pending: list[Tally] = []
        self._idle_since_s = self._computed_s = 0.0

    def begin(self, tally: Tally) -> float:
        """Note that a block begins, or one more call of a function, and return the time."""
        with self._lock:
            if tally.open == 0:
                self._read_meters()
                self._open.append(tally)
            now_s = self._clock.now()
            if tally.open == 0:
                tally.since_s, tally.since_cpu_s = now_s, self._cpu_s()
            tally.open += 1
            return now_s

    def end(self, tally: Tally, begin_s: float) -> None:
        """Note the end of the block, or of one call, that began at `begin_s`."""
        with self._lock:
            now_s = self._clock.now()
            took_s = now_s - begin_s
            tally.calls += 1
            tally.shortest_s, tally.longest_s = min(tally.shortest_s, took_s), max(tally.longest_s, took_s)
            tally.open -= 1
            if tally.open:
                return
            tally.cpu_s += max(0.0, self._cpu_s() - tally.since_cpu_s)
            self._add(tally, now_s)
            self._open.remove(tally)
            self._idle_since_s = now_s
            if self._sampler is not None:
                self._sampler.touch()
            if len(tally.stretches) >= MOST_STRETCHES:
                self._compute_enclosed()

    def result(self, tally: Tally) -> BlockMeasurement:
        """Return what was measured so far, also while the block is open. Waits for the readings that enclose it."""
        with self._lock:
            if tally.open and tally.since_s < self._clock.now():
                self._add(tally, self._clock.now())
                if self._sampler is not None:
                    self._sampler.touch()
            sampler = self._sampler
        if sampler is not None and tally.stretches:
            self._wait_for_readings(sampler, tally.stretches[-1][1])
        with self._lock:
            self._compute(tally)
            return to_measurement(tally)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Return the domains of the meters."""
        return tuple(domain for meter in self._meters.meters for domain in meter.domains)

    def forget_fork(self) -> None:
        """Start anew in a forked process, which has no thread that reads the meters."""
        self._lock = threading.RLock()
        self._sampler, self._pending = None, []
        for tally in self._open:
            tally.unknown["meters"] = "the process was forked while it was open: the energy before is not known"
            tally.since_s, tally.since_cpu_s = self._clock.now(), self._read_cpu_s()

    def _read_meters(self) -> None:
        if self._sampler is not None:
            self._sampler.touch()
            return
        sampler = _LingeringSampler(self._meters.meters, clock=self._clock)
        sampler.__enter__()
        sampler.edge()
        sampler.is_over = lambda: self._stop_when_idle(sampler)
        self._sampler, self._computed_s = sampler, self._clock.now()

    def _stop_when_idle(self, sampler: Sampler) -> bool:
        with self._lock:
            if self._sampler is not sampler:
                return True
            if self._open or self._clock.now() < self._idle_since_s + LINGER_S:
                if self._clock.now() > self._computed_s + COMPUTE_S:
                    self._compute_enclosed()
                return False
            for tally in list(self._pending):
                self._compute(tally)
            self._sampler = None
            return True

    def _cpu_s(self) -> float:
        return self._read_cpu_s() - (0.0 if self._sampler is None else self._sampler.cpu_s)

    def _add(self, tally: Tally, end_s: float) -> None:
        """Add the time since the begin of the block, or since the last such call."""
        tally.open_s += end_s - tally.since_s
        tally.stretches.append((tally.since_s, end_s))
        tally.since_s = end_s
        if not any(each is tally for each in self._pending):
            self._pending.append(tally)

    def _wait_for_readings(self, sampler: Sampler, end_s: float) -> None:
        sampler.catch_up(end_s)
        for domain in sampler.primary_domains():
            until_s = end_s + STILL_PERIODS * domain.period_s + POLL_S
            while _enclosed_s(sampler, domain) < end_s and self._clock.now() <= until_s:
                self._clock.sleep(min(POLL_S, max(domain.period_s, MIN_POLL_S)))
                sampler.edge()

    def _compute_enclosed(self) -> None:
        """Compute the energy of all blocks up to the last moment that every meter has readings of."""
        assert self._sampler is not None
        self._computed_s = self._clock.now()
        until_s = min((_enclosed_s(self._sampler, d) for d in self._sampler.primary_domains()), default=0.0)
        for tally in self._open:
            if until_s > tally.since_s:
                self._add(tally, until_s)
        for tally in list(self._pending):
            self._compute(tally, until_s)
        begins_s = [each.stretches[0][0] for each in self._pending] + [each.since_s for each in self._open]
        self._sampler.forget(min([until_s, *begins_s]))

    def _compute(self, tally: Tally, until_s: float = float("inf")) -> None:
        """Add the energy of the stretches that end before `until_s`."""
        ready = [each for each in tally.stretches if each[1] <= until_s]
        tally.stretches = tally.stretches[len(ready) :]
        if not tally.stretches:
            self._pending = [each for each in self._pending if each is not tally]
        if not ready:
            return
        if self._sampler is None:
            tally.unknown.setdefault("meters", "they were not read to its end")
            return
        for domain in self._sampler.primary_domains():
            curve = _curve(self._sampler, domain)
            if curve is None:
                tally.unknown[domain.name] = "its meter gave no readings for a part of the time"
            else:
                tally.energies[domain] = tally.energies.get(domain, StretchEnergy()) + energy_in(curve, ready)
        tally.unknown |= {name: error.what for name, error in self._sampler.failures.items()}


def _curve(sampler: Sampler, domain: Domain) -> Curve | None:
    """Return the curve of a domain so far; None if its readings are too few or contradict themselves."""
    try:
        curve = curve_from_start(domain, sampler.readings(domain))
    except JoulediffError:
        return None
    return curve if len(curve.time_s) else None


def _enclosed_s(sampler: Sampler, domain: Domain) -> float:
    """Return the last moment at which the energy of a domain is known; without end if it will never be."""
    readings, curve = sampler.readings(domain), _curve(sampler, domain)
    if curve is None:
        return float("inf") if sampler.failures else float("-inf")
    changed_s = float(curve.time_s[-1] - curve.err_s[-1])
    is_counter = domain.kind == "counter"
    return max(changed_s, readings[-1].time_s - STILL_PERIODS * domain.period_s) if is_counter else changed_s


def to_measurement(tally: Tally) -> BlockMeasurement:
    """Return the energy of a tally in each domain and in all, with a warning for each reason to doubt it."""
    domains, warnings = {}, [f"{name}: {what}" for name, what in tally.unknown.items()]
    for domain, found in tally.energies.items():
        energy = found.to_energy(domain)
        if energy is None:
            warnings.append(f"{domain.name}: its readings give no finite energy")
            continue
        domains[domain.name] = DomainEnergy(
            energy=energy,
            net_energy=None,
            power_w=energy.joules / tally.open_s if tally.open_s > 0 else 0.0,
            idle=None,
            kind=domain.kind,
            device=domain.device,
            counted=True,
            note=domain.note,
        )
        if found.unread_s > STILL_PERIODS * TICK_JITTER * domain.period_s:
            warnings.append(f"{domain.name}: the meter gave no readings for {format_si(found.unread_s, 's')} of it")
        if not energy.is_surely_positive:
            warnings.append(_too_short(domain, tally, energy))
    if domains:
        domains = count_domains(domains, list(tally.energies))
    return BlockMeasurement(
        name=tally.name,
        calls=tally.calls,
        seconds=tally.open_s,
        shortest_s=min(tally.shortest_s, tally.longest_s),
        longest_s=tally.longest_s,
        energy=add_common(each.energy for each in domains.values() if each.counted),
        domains=domains,
        cpu_s=tally.cpu_s,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _too_short(domain: Domain, tally: Tally, energy: Energy) -> str:
    call_s = tally.open_s / max(1, tally.calls)
    why = (
        f", which has a new value every {format_si(domain.period_s, 's', digits=3)}" if call_s < domain.period_s else ""
    )
    took = f"a call of {format_si(call_s, 's', digits=3)} is too short for its meter{why}"
    return f"{domain.name}: {took}: the energy is at most {format_energy(energy.high)}"


_shared: dict[tuple[str, float | None], SharedMeters] = {}
_opening = threading.Lock()


def shared_meters(meter: str, cpu_watts: float | None) -> SharedMeters:
    """Return the meters of this process with these names, opened at the first call."""
    key = (meter, cpu_watts)
    if key not in _shared:
        with _opening:
            if key not in _shared:
                clock = RealClock()
                opened = open_meters(meter, clock=clock, cpu_watts=cpu_watts, cache=SensorCache())
                _shared[key] = SharedMeters(opened, clock=clock)
    return _shared[key]


def _forget_fork() -> None:
    global _opening
    _opening = threading.Lock()
    for each in _shared.values():
        each.forget_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_fork)
