"""Measure the energy of one call of a load, above that of the resting device, in each domain that sees the device.

A load runs in bursts: on a GPU with rests between them, so that it has the clock of the program, on the host without.
The energy above rest does not depend on the length of the rests or on whether the queue ran dry, as long as the clock
stays: rest power × time is subtracted for whatever time passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from joulediff.energy.gpu_clock import PROBE_S, ProgramGpu, cache_factor, clock_factor, find_rest_share
from joulediff.frameworks.recorder import Load
from joulediff.measuring.conditions import judge_devices
from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.loop import Next, WindowLoop, mean_clocks
from joulediff.measuring.meters.meter import Clock, Meter
from joulediff.measuring.repeater import Repeater, StepLog
from joulediff.measuring.sampler import Sampler
from joulediff.measuring.windows import StepEnergy, joules_per_step
from joulediff.model.energy import Energy, scale, subtract, widen
from joulediff.model.errors import JoulediffError, NotCovered
from joulediff.model.measurement import Condition, DeviceState, Domain, DomainEnergy, Measurement
from joulediff.model.run import Replay

# Power samples of an H200 have settled on a new load after 60 to 80 ms; `warm_up` runs it for 50 ms before.
SETTLE_S = 0.04
# A measurement is cut into windows, whose spread shows how steady it was.
WINDOW_S = 0.1
MIN_WINDOWS = 3
# An error is at most this many times as large above rest, where an operator draws next to nothing.
MAX_AMPLIFICATION = 100.0
# What a burst costs beside its calls is a small part of it, so a short measurement will do.
EMPTY_WINDOW_S = 0.1
# If the meter covered no window, the measurement is repeated once, this many times as long.
LONGER = 3
# A probe is cut into this many parts; the last clocks and samples count.
PROBE_PARTS = 4
PROBE_CLOCKS = 2
PROBE_SAMPLES = 2
REST_WINDOW_S = 0.4
REST_S = 1e-3
# Rest power moves with the temperature, over tens of seconds.
REST_FRESH_S = 30.0
# Without rests the power is even: the samples of half a second repeat within 0.3 %, with rests within 1.3 % (H200).
LIGHT_REST_SHARE = 0.1
LIGHT_WINDOW, HEAVY_WINDOW = 0.6, 1.6
# A GPU this much warmer or colder than in the program draws noticeably different power at rest.
HEAT_C = 15.0


@dataclass(frozen=True, slots=True)
class BurstEnergy:
    """One measurement of bursts. Energy above rest, seconds and CPU seconds are those of one burst."""

    domains: dict[str, StepEnergy]
    clocks_mhz: dict[str, float]
    cpu_s: float
    bursts: float
    temperatures_c: dict[str, float]
    warnings: tuple[str, ...]


class BurstMeter:
    """Measures bursts of work with the meters of a machine."""

    def __init__(
        self, meters: Sequence[Meter], *, clock: Clock, cpu_s: Callable[[], float] = time.process_time
    ) -> None:
        self._meters = list(meters)
        self._clock = clock
        self._cpu_s = cpu_s

    def measure(self, run: Callable[[], None], rest_w: Mapping[str, float], *, window_s: float) -> BurstEnergy:
        """Return the energy of one call of `run` in each domain of `rest_w`, above the power given there.

        It takes `window_s`, or as long as a few calls take. It is repeated once if the meter covered none of them.
        """
        repeater = Repeater(run, clock=self._clock)
        with Sampler(self._meters, clock=self._clock) as sampler:
            wanted = {domain: rest_w[domain.name] for domain in sampler.primary_domains() if domain.name in rest_w}
            if not wanted:
                raise JoulediffError(f"no meter sees {' or '.join(rest_w)}")
            with _device_errors():
                try:
                    return self._measure(repeater, sampler, wanted, window_s)
                except NotCovered:  # a busy machine may have stopped everything for that long
                    return self._measure(repeater, sampler, wanted, LONGER * window_s)

    def probe(
        self, run: Callable[[], None], domain: str, *, seconds: float = PROBE_S
    ) -> tuple[float | None, float | None]:
        """Return the approximate power of a load in watts, and its clock; None for a value the meter cannot show."""
        repeater = Repeater(run, clock=self._clock)
        with Sampler(self._meters, clock=self._clock) as sampler, _device_errors():
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

    def _measure(
        self, repeater: Repeater, sampler: Sampler, domains: Mapping[Domain, float], window_s: float
    ) -> BurstEnergy:
        step_s = repeater.warm_up()
        count = max(MIN_WINDOWS, round(window_s / WINDOW_S))
        window_s = max(window_s, 2 * step_s, *(3 * count * domain.period_s for domain in domains))

        def after_window(done: int) -> Next:
            return "window" if done < count else "stop"

        loop = WindowLoop(repeater, sampler, clock=self._clock, read_cpu_s=self._cpu_s)
        loop.run(settle_s=SETTLE_S, window_s=window_s / count, after_window=after_window)
        repeater.drain()
        found = loop.windows
        (edges_s,) = found.stretches
        if any(meter.late_s for meter in self._meters):  # the others lack a period at most, and the window ends there
            sampler.catch_up(edges_s[-1])
        states = (found.states_before, found.states_after)
        return BurstEnergy(
            domains={
                domain.name: _above_rest(sampler.curve(domain), found.log, edges_s, rest_w)
                for domain, rest_w in domains.items()
            },
            clocks_mhz=found.mean_clocks_mhz,
            cpu_s=found.cpu_per_step_s or 0.0,
            bursts=found.log.steps_between(edges_s[0], edges_s[-1]),
            temperatures_c={s.domain: s.temperature_c for s in found.states_after if s.temperature_c is not None},
            warnings=_warnings([c for s in states for c in judge_devices(s, s, idle=False)], domains),
        )


@contextmanager
def _device_errors() -> Iterator[None]:
    """Turn an exception of the device, raised when its work is queued or waited for, into an error of this operator."""
    try:
        yield
    except RuntimeError as error:
        raise JoulediffError(f"it failed when run again: {str(error).partition(chr(10))[0][:200]}") from error


def _above_rest(curve: Curve, log: StepLog, edges_s: Sequence[float], rest_w: float) -> StepEnergy:
    """Return the energy of a burst above rest, from windows without the rest power."""
    gross = joules_per_step(curve, log, [edges_s])
    if not rest_w:
        return gross
    gross_j = gross.energy.joules
    net_j = gross_j - rest_w * gross.step_s
    # The error between repeats is a share of the whole power.
    share = curve.domain.repeat_share * min(MAX_AMPLIFICATION, abs(gross_j / net_j) if net_j else math.inf)
    domain = replace(curve.domain, repeat_share=share)
    net = replace(curve, domain=domain, energy_j=curve.energy_j - rest_w * (curve.time_s - curve.time_s[0]))
    return joules_per_step(net, log, [edges_s])


def _warnings(conditions: Sequence[Condition], domains: Iterable[Domain]) -> tuple[str, ...]:
    names = {domain.name for domain in domains}
    return tuple(dict.fromkeys(c.advice or c.value for c in conditions if not c.ok and c.domain in names))


class GpuMeter:
    """Measures loads on one GPU at the program's clock, or as near to it as possible."""

    def __init__(
        self,
        gpu: ProgramGpu,
        burst_meter: BurstMeter,
        *,
        open_rest: Callable[[], Load | None],
        clock: Clock,
        rest_share: float | None = None,
    ) -> None:
        self.gpu = gpu
        self._burst_meter = burst_meter
        self._open_rest = open_rest
        self._clock = clock
        self._forced_share = rest_share
        self._rest: tuple[StepEnergy, float] | None = None

    def measure(self, op: int, load: Load, window_s: float) -> Replay:
        """Return the energy of one call of a load above rest, as a replay of `op`."""
        rest = self._find_rest()
        share = self._forced_share
        if share is None:
            share = find_rest_share(self.gpu, rest.power_w, lambda share, seconds: self._probe(load, share, seconds))
        window_s *= LIGHT_WINDOW if share < LIGHT_REST_SHARE else HEAVY_WINDOW
        found = self._measure_bursts(load, share, rest, window_s)
        if found.warnings:
            found = self._measure_bursts(load, share, rest, window_s)
        return self._to_replay(op, load, found, rest)

    def _find_rest(self) -> StepEnergy:
        """Return the power at rest: measured now, or not long ago."""
        now_s, domain = self._clock.now(), self.gpu.domain
        if self._rest is None or now_s - self._rest[1] > REST_FRESH_S:
            load = self._open_rest()
            if load is None:
                raise JoulediffError(f"{self.gpu.device} cannot be held at rest")
            with closing(load):
                found = self._burst_meter.measure(lambda: load.run(REST_S), {domain: 0.0}, window_s=REST_WINDOW_S)
            self._rest = (found.domains[domain], now_s)
        return self._rest[0]

    def _probe(self, load: Load, rest_share: float, seconds: float) -> tuple[float | None, float | None]:
        return self._burst_meter.probe(lambda: load.run(rest_share * load.burst_s), self.gpu.domain, seconds=seconds)

    def _measure_bursts(self, load: Load, rest_share: float, rest: StepEnergy, window_s: float) -> BurstEnergy:
        return self._burst_meter.measure(
            lambda: load.run(rest_share * load.burst_s), {self.gpu.domain: rest.power_w}, window_s=window_s
        )

    def _to_replay(self, op: int, load: Load, found: BurstEnergy, rest: StepEnergy) -> Replay:
        """Return the energy of one call, corrected for the program's clock and cache."""
        gpu = self.gpu
        burst, clock_mhz = found.domains[gpu.domain], found.clocks_mhz.get(gpu.domain)
        energy = widen(burst.energy, rest.energy.half_j / rest.step_s * burst.step_s)
        is_heavy = rest.power_w + burst.energy.joules / load.burst_s > (gpu.limit_w or math.inf)
        corrections = (
            cache_factor(load.call_s, load.aim_s, slowdown=gpu.slowdown),
            clock_factor(clock_mhz, gpu.clock_mhz, heavy=is_heavy),
        )
        for factor, error in corrections if self._forced_share is None else ():
            energy = scale(energy, factor, error=error)
        return _replay(
            Replay(
                op,
                gpu.domain,
                rest_w=rest.power_w,
                call_s=load.call_s,
                calls=round(found.bursts * load.calls),
                clock_mhz=clock_mhz,
            ),
            load,
            energy,
            (*found.warnings, *self._warn_clock(clock_mhz), *self._warn_heat(found.temperatures_c.get(gpu.domain))),
        )

    def _warn_clock(self, clock_mhz: float | None) -> list[str]:
        if self.gpu.is_at_clock(clock_mhz):
            return []
        return [f"replayed at {clock_mhz:.0f} MHz, the program ran at {self.gpu.clock_mhz:.0f} MHz"]

    def _warn_heat(self, warm_c: float | None) -> list[str]:
        program_c = self.gpu.temperature_c
        if warm_c is None or program_c is None or abs(warm_c - program_c) <= HEAT_C:
            return []
        return [f"replayed at {warm_c:.0f} °C, the program ran at {program_c:.0f} °C"]


@dataclass(frozen=True, slots=True)
class _Beside:
    """The cost of a burst without its calls, in one domain; nothing if it was not measured."""

    burst: StepEnergy | None = None
    cpu_s: float = 0.0

    @property
    def step_s(self) -> float:
        return 0.0 if self.burst is None else self.burst.step_s

    def subtract_from(self, whole: Energy | None) -> Energy | None:
        """Return the energy of the calls alone: an operator that costs less than the errors may cost nothing."""
        if self.burst is None or whole is None:
            return whole
        alone = subtract(whole, [self.burst.energy])
        return None if alone is None else alone.not_negative()


@dataclass(slots=True)
class LoadMeter:
    """Measures loads under the conditions of one measured program. `open_rest` gives a device at rest."""

    measurement: Measurement | None
    burst_meter: BurstMeter
    clock: Clock
    open_rest: Callable[[str], Load | None]
    rest_share: float | None = None
    """The same rests for every load, without control of the clock; to show the effect of the clock."""
    _gpus: dict[str, GpuMeter] = field(default_factory=dict)

    def under(self, measurement: Measurement) -> LoadMeter:
        """Return a meter for the conditions of another measured program."""
        return replace(self, measurement=measurement, _gpus={})

    def measure_job(self, op: int, device: str, load: Load, window_s: float) -> list[Replay]:
        """Return the energy of one call of a load in each domain, as replays of `op`."""
        if device == "cpu":
            return self._on_host(op, load, window_s)
        return [self._gpu(device).measure(op, load, window_s)]

    def domains(self, device: str) -> list[str]:
        """Return the domains of the measurement that see a device."""
        found = self._measured()
        if device != "cpu":
            return [name_domain(device)] if name_domain(device) in found else []
        return [name for name in found if name.startswith(("cpu", "dram"))]

    def is_counted(self, device: str) -> bool:
        """Return whether the energy of a device is part of the total."""
        return any(self._measured()[name].counted for name in self.domains(device))

    def _on_host(self, op: int, load: Load, window_s: float) -> list[Replay]:
        idle = {name: self._measured()[name].idle for name in self.domains("cpu")}
        rest_w = {name: 0.0 if found is None else found.power_w for name, found in idle.items()}
        found = self.burst_meter.measure(lambda: load.run(0.0), rest_w, window_s=window_s)
        empty = None
        if load.run_empty is not None:
            empty = self.burst_meter.measure(load.run_empty, rest_w, window_s=EMPTY_WINDOW_S)
        rows = []
        for name, burst in found.domains.items():
            power = idle[name]
            rest = None if power is None else power.over(burst.step_s, burst.energy.source)
            beside = _Beside() if empty is None else _Beside(empty.domains.get(name), empty.cpu_s)
            row = Replay(
                op,
                name,
                source="estimated" if self._measured()[name].energy.source == "estimated" else "replayed",
                rest_w=rest_w[name],
                call_s=max(0.0, burst.step_s - beside.step_s) / load.calls,
                cpu_s=max(0.0, found.cpu_s - beside.cpu_s) / load.calls,
                calls=round(found.bursts * load.calls),
                beside_j=None if beside.burst is None else beside.burst.energy.joules / load.calls,
            )
            energy = beside.subtract_from(widen(burst.energy, 0.0 if rest is None else rest.half_j))
            rows.append(_replay(row, load, energy, found.warnings))
        return rows

    def _gpu(self, device: str) -> GpuMeter:
        if device not in self._gpus:
            name, found = name_domain(device), self.measurement
            assert found is not None
            state = next((each for each in found.states if each.domain == name), DeviceState(name))
            gpu = ProgramGpu(
                device,
                name,
                found.clocks_mhz.get(name),
                found.domains[name].power_w,
                state.power_limit_w,
                state.temperature_c,
                state.clock_max_mhz,
            )
            self._gpus[device] = GpuMeter(
                gpu,
                self.burst_meter,
                open_rest=lambda: self.open_rest(device),
                clock=self.clock,
                rest_share=self.rest_share,
            )
        return self._gpus[device]

    def _measured(self) -> dict[str, DomainEnergy]:
        return {} if self.measurement is None else dict(self.measurement.domains)


def _replay(row: Replay, load: Load, burst: Energy | None, warnings: Sequence[str]) -> Replay:
    """Return a row with the energy of one call, from that of a burst, and how it was run."""
    call = scale(burst, 1 / load.calls)
    if call is None:
        raise JoulediffError(f"the readings of {row.domain} give no finite energy")
    return replace(
        row,
        energy_j=call.joules,
        low_j=call.low,
        high_j=call.high,
        how=load.how,
        inputs=load.inputs,
        copies=load.copies,
        note="; ".join(warnings) or None,
    )


def name_domain(device: str) -> str:
    """Return the domain that a device is known by: `gpu0` for `cuda:0`."""
    kind, _, index = device.partition(":")
    return "cpu" if kind == "cpu" else f"gpu{index or 0}"
