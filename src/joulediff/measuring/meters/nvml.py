"""NVIDIA GPUs through NVML: the driver's power samples, checked against the energy counter.

The driver keeps power samples with time stamps (H200: one in 20 ms, 2.4 s of them), so two polls a second lose
nothing. Their integral is more accurate than the counter, whose ticks (100 ms) are known only to a few milliseconds:
over 0.7 s on an H200 it differs by 0.8 % (rms) from a 4 s reference, the counter by 1.1 %; over 4 s the two agree
within 0.1 % (`benchmarks/traces.py`). One counter read takes 4.5 ms of a core, a poll of the samples 0.6 ms
(`joulediff doctor`). A GPU without samples is read at the counter's ticks, one without a counter by polling its power.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.measuring.meters.visible import Card, visible_cards
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import POWER_CAP, DeviceState, Domain, Reading

# Some GPUs keep only a second of samples; half of that loses none.
SAMPLES_POLL_S = 0.5
POLLED_POWER_S = 0.02
# One-second measurements of five operators differ by 0.60 and 0.67 % (rms) from their references, by 1.85 % at
# worst (H200, the two runs of `benchmarks/accuracy.py` in benchmarks/results).
REPEAT_SHARE = 0.006
# Samples take up to 62 ms to show a load (`benchmarks/traces.py`); power and clock need more time to settle.
SETTLE_S = 0.25
# A window has this many readings, and is no longer than a slow meter needs. Two seconds in windows of 0.25 s have the
# interval of 3.75 s in windows of 0.5 s (`benchmarks/turns.py`), since the spread is known better.
WINDOW_READINGS = 12
SHORT_WINDOW_S, WINDOW_S = 0.25, 0.5
TICK_S = 0.1
# From this share of the period after a tick, the counter is polled often, to find the next tick.
TICK_SOON_SHARE = 0.85
TICK_HUNT_S = 0.002
LOOKS = 3

_THROTTLE = {
    0x04: POWER_CAP,
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}


@dataclass(slots=True)
class _Device:
    """A card that is being read. `last_us` is the stamp of the newest sample taken."""

    domain: str
    handle: Any
    card: Card
    has_samples: bool = False
    has_counter: bool = False
    power_field: int | None = None
    last_us: int = 0
    counter_j: float | None = None
    tick_soon_s: float = float("-inf")
    domains: list[Domain] = field(default_factory=list)


class NvmlMeter(Meter):
    """All visible cards. Each has power samples, a counter, or polled power: see `domains`."""

    name = "nvml"

    def __init__(self, driver: Any, devices: list[_Device], *, clock: Clock, wall_s: Callable[[], float]) -> None:
        self._nvml = driver
        self._devices = devices
        self._clock = clock
        self._wall_s = wall_s
        self.domains = tuple(d for device in devices for d in device.domains)
        self.poll_s = SAMPLES_POLL_S if all(d.has_samples for d in devices) else POLLED_POWER_S

    def poll(self) -> list[Reading]:
        try:
            readings = [reading for device in self._devices for reading in self._read(device)]
        except self._nvml.NVMLError as error:
            raise MeterFailed(
                f"the NVIDIA driver stopped answering ({error})", fix="check `nvidia-smi` and the kernel log"
            ) from error
        self.poll_s = min(map(self._until_poll_s, self._devices))
        return readings

    def _until_poll_s(self, device: _Device) -> float:
        """Return the seconds until this card should be polled again."""
        if device.has_samples:
            return SAMPLES_POLL_S
        if device.has_counter:
            return max(TICK_HUNT_S, device.tick_soon_s - self._clock.now())
        return POLLED_POWER_S

    def _read(self, device: _Device) -> list[Reading]:
        if device.has_samples:
            return self._read_samples(device)
        if device.has_counter:
            reading = self.read_counter(device.domain)
            if device.counter_j is not None and reading.value != device.counter_j:
                period_s = next(d.period_s for d in self.domains if (d.name, d.kind) == (device.domain, "counter"))
                device.tick_soon_s = reading.time_s + TICK_SOON_SHARE * period_s
            device.counter_j = reading.value
            return [reading]
        return [self._read_power(device)]

    def _read_samples(self, device: _Device) -> list[Reading]:
        to_clock_s = self._to_clock()
        stamps = _samples(self._nvml, device.handle, device.last_us)
        if stamps:
            device.last_us = stamps[-1][0]
        return [Reading(device.domain, "power", us * 1e-6 + to_clock_s, mw * 1e-3) for us, mw in stamps]

    def _to_clock(self) -> float:
        """Return the offset from the driver's time stamps to our clock, from the quickest of a few tries.

        A pause of the thread between the reads of the two clocks would shift a whole batch of samples.
        """
        looks = []
        for _ in range(LOOKS):
            before_s, wall_s, after_s = self._clock.now(), self._wall_s(), self._clock.now()
            looks.append((after_s - before_s, (before_s + after_s) / 2 - wall_s))
        return min(looks)[1]

    def _read_power(self, device: _Device) -> Reading:
        start_s = self._clock.now()
        power_mw = _polled_power(self._nvml, device.handle, device.power_field)
        now_s = self._clock.now()
        return Reading(device.domain, "power", now_s, power_mw * 1e-3, now_s - start_s)

    def read_counter(self, domain: str) -> Reading:
        """Return the energy counter of one card, now."""
        device = next(d for d in self._devices if d.domain == domain)
        start_s = self._clock.now()
        energy_mj = self._nvml.nvmlDeviceGetTotalEnergyConsumption(device.handle)
        now_s = self._clock.now()
        return Reading(domain, "counter", now_s, energy_mj * 1e-3, now_s - start_s)

    def check_readings(self) -> list[Reading]:
        try:
            return [self.read_counter(d.domain) for d in self._devices if d.has_samples and d.has_counter]
        except self._nvml.NVMLError:
            return []  # the samples are the measurement, and polling them raises if the driver fails

    def states(self) -> list[DeviceState]:
        return [self._state(device) for device in self._devices]

    def clocks(self) -> dict[str, float]:
        found = {}
        for device in self._devices:
            with contextlib.suppress(self._nvml.NVMLError):
                found[device.domain] = float(self._nvml.nvmlDeviceGetClockInfo(device.handle, self._nvml.NVML_CLOCK_SM))
        return found

    def _state(self, device: _Device) -> DeviceState:
        n, handle = self._nvml, device.handle

        def ask(call: Callable[..., Any], *args: Any) -> Any:
            try:
                return call(handle, *args)
            except n.NVMLError:
                return None

        reasons = ask(n.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        limit_mw = ask(n.nvmlDeviceGetEnforcedPowerLimit)
        processes = ask(n.nvmlDeviceGetComputeRunningProcesses) or []
        return DeviceState(
            device.domain,
            clock_mhz=ask(n.nvmlDeviceGetClockInfo, n.NVML_CLOCK_SM),
            clock_max_mhz=ask(n.nvmlDeviceGetMaxClockInfo, n.NVML_CLOCK_SM),
            temperature_c=ask(n.nvmlDeviceGetTemperature, n.NVML_TEMPERATURE_GPU),
            power_limit_w=None if limit_mw is None else limit_mw * 1e-3,
            throttle=tuple(text for bit, text in _THROTTLE.items() if reasons & bit),
            other_pids=tuple(p.pid for p in processes if p.pid != os.getpid()),
        )

    def close(self) -> None:
        _shut_down(self._nvml)


def open_nvml(
    *,
    driver: Any = None,
    clock: Clock | None = None,
    env: Mapping[str, str] | None = None,
    wall_s: Callable[[], float] = time.time,
    ask_cuda: Callable[[], list[str]] | None = None,
) -> NvmlMeter:
    """Return a meter of the cards that a CUDA program with this environment sees."""
    if driver is None:
        import pynvml

        driver = pynvml
    try:
        driver.nvmlInit()
    except driver.NVMLError as error:
        raise MeterUnavailable(
            f"no NVIDIA driver answers ({error})", fix="needs an NVIDIA GPU and its driver; `nvidia-smi` must work"
        ) from error
    try:
        devices = _find_devices(driver, env if env is not None else os.environ, ask_cuda)
    except driver.NVMLError as error:
        _shut_down(driver)
        raise MeterUnavailable(
            f"the NVIDIA driver does not list its cards ({error})", fix="try `nvidia-smi`"
        ) from error
    except MeterUnavailable:
        _shut_down(driver)
        raise
    return NvmlMeter(driver, devices, clock=clock or RealClock(), wall_s=wall_s)


def _shut_down(driver: Any) -> None:
    # A driver that has failed cannot be shut down either.
    with contextlib.suppress(driver.NVMLError):
        driver.nvmlShutdown()


def _find_devices(driver: Any, env: Mapping[str, str], ask_cuda: Callable[[], list[str]] | None) -> list[_Device]:
    handles = [driver.nvmlDeviceGetHandleByIndex(i) for i in range(driver.nvmlDeviceGetCount())]
    cards = [_card(driver, handle) for handle in handles]
    if not cards:
        raise MeterUnavailable("the NVIDIA driver runs, but there is no card")
    visible = visible_cards(cards, env, ask_cuda=ask_cuda)
    if not visible:
        raise MeterUnavailable(
            f"CUDA_VISIBLE_DEVICES={env.get('CUDA_VISIBLE_DEVICES')!r} hides all of {len(cards)} cards",
            fix="unset it, or name a card: " + ", ".join(card.uuid for card in cards),
        )
    by_uuid = dict(zip((card.uuid for card in cards), handles, strict=True))
    return [_open_device(driver, f"gpu{i}", by_uuid[card.uuid], card) for i, card in enumerate(visible)]


def _card(driver: Any, handle: Any) -> Card:
    return Card(driver.nvmlDeviceGetUUID(handle), driver.nvmlDeviceGetName(handle), tuple(_mig_uuids(driver, handle)))


def _mig_uuids(driver: Any, handle: Any) -> list[str]:
    try:
        if driver.nvmlDeviceGetMigMode(handle)[0] != driver.NVML_DEVICE_MIG_ENABLE:
            return []
        count = driver.nvmlDeviceGetMaxMigDeviceCount(handle)
    except driver.NVMLError:
        return []
    found = []
    for index in range(count):
        try:
            found.append(driver.nvmlDeviceGetUUID(driver.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
        except driver.NVMLError:
            continue  # an empty slot
    return found


def _open_device(driver: Any, domain: str, handle: Any, card: Card) -> _Device:
    device = _Device(domain, handle, card)
    shared = "whole card: its MIG instances have no separate sensors" if card.mig_uuids else ""
    stamps = _samples(driver, handle, 0) if _answers(driver, lambda: _samples(driver, handle, 0)) else []
    if len(stamps) >= 3:
        device.has_samples = True
        device.last_us = stamps[-1][0]
        device.domains.append(_domain(device, "power", _median_step(stamps), _power_step(stamps), shared))
    if _answers(driver, lambda: driver.nvmlDeviceGetTotalEnergyConsumption(handle)):
        device.has_counter = True
        device.domains.append(_domain(device, "counter", TICK_S, 1e-3, shared))
    if not device.domains:
        _open_polled_power(driver, device, shared)
    return device


def _open_polled_power(driver: Any, device: _Device, shared: str) -> None:
    for power_field in (driver.NVML_FI_DEV_POWER_INSTANT, None):
        handle = device.handle
        if _answers(driver, lambda h=handle, f=power_field: _polled_power(driver, h, f)):  # type: ignore[misc]
            device.power_field = power_field
            what = "instantaneous power, polled" if power_field else "averaged power, polled: short work is blurred"
            note = f"no energy counter and no sample buffer: {what}" + (f"; {shared}" if shared else "")
            device.domains.append(_domain(device, "power", TICK_S, 0.1, note))
            return
    raise MeterUnavailable(
        f"{device.card.model} ({device.card.uuid}) reports neither energy nor power",
        fix="cards before Volta and some virtual GPUs do not; choose another meter with --meter",
    )


def _domain(device: _Device, kind: Any, period_s: float, resolution_j: float, note: str) -> Domain:
    return Domain(
        name=device.domain,
        kind=kind,
        device=device.card.model,
        key=f"nvml/{device.card.uuid}/{kind}",
        period_s=period_s,
        resolution_j=resolution_j,
        repeat_share=REPEAT_SHARE,
        window_s=min(WINDOW_S, max(SHORT_WINDOW_S, WINDOW_READINGS * period_s)),
        settle_s=SETTLE_S,
        note=note or None,
    )


def _answers(driver: Any, call: Callable[[], Any]) -> bool:
    try:
        call()
    except driver.NVMLError:
        return False
    return True


def _samples(driver: Any, handle: Any, since_us: int) -> list[tuple[int, int]]:
    """Return (stamp in µs, milliwatts) of the samples newer than `since_us`."""
    try:
        _, raw = driver.nvmlDeviceGetSamples(handle, driver.NVML_TOTAL_POWER_SAMPLES, since_us)
    except driver.NVMLError_NotFound:
        return []
    return [(s.timeStamp, s.sampleValue.uiVal) for s in raw if s.timeStamp > since_us]


def _polled_power(driver: Any, handle: Any, power_field: int | None) -> int:
    if power_field is None:
        return int(driver.nvmlDeviceGetPowerUsage(handle))
    value = driver.nvmlDeviceGetFieldValues(handle, [power_field])[0]
    if value.nvmlReturn != driver.NVML_SUCCESS:
        raise driver.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def _median_step(stamps: list[tuple[int, int]]) -> float:
    return float(np.median(np.diff([us for us, _ in stamps]))) * 1e-6


def _power_step(stamps: list[tuple[int, int]]) -> float:
    """Return the energy that the smallest change of power makes in one sample."""
    changes_mw = np.abs(np.diff([mw for _, mw in stamps]))
    changes_mw = changes_mw[changes_mw > 0]
    smallest_w = float(changes_mw.min()) * 1e-3 if len(changes_mw) else 1e-3
    return smallest_w * _median_step(stamps)
