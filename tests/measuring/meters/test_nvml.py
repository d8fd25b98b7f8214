from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.meters.nvml import (
    POLLED_POWER_S,
    SAMPLES_POLL_S,
    TICK_HUNT_S,
    TICK_S,
    TICK_SOON_SHARE,
    NvmlMeter,
    open_nvml,
)
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import Reading

WALL_S = 1_700_000_000.0
START_US = int(WALL_S * 1e6)
STEP_US = 20_000


class NVMLError(Exception):
    pass


class NVMLError_NotFound(NVMLError):  # noqa: N801
    pass


def samples(*powers_mw: int, start_us: int = START_US - 10 * STEP_US) -> list[tuple[int, int]]:
    return [(start_us + i * STEP_US, power_mw) for i, power_mw in enumerate(powers_mw)]


@dataclass
class ScriptedCard:
    """What a card answers; None for a call it does not support."""

    uuid: str = "GPU-aa11"
    model: str = "NVIDIA H200"
    samples: list[tuple[int, int]] | None = field(default_factory=lambda: samples(100_000, 100_500, 102_000, 101_000))
    energy_mj: int | None = 5_000_000
    instant_mw: int | None = 90_000
    average_mw: int | None = 80_000
    mig_slots: list[str | None] | None = None
    clock_mhz: int | None = 1980
    temperature_c: int | None = 41
    limit_mw: int | None = 700_000
    throttle: int | None = 0
    pids: list[int] | None = field(default_factory=list)


class ScriptedDriver:
    """The calls of `pynvml` that the meter uses; a handle is a card. A counter's read takes `read_s`."""

    NVMLError = NVMLError
    NVMLError_NotFound = NVMLError_NotFound
    NVML_SUCCESS = 0
    NVML_TOTAL_POWER_SAMPLES = 0
    NVML_FI_DEV_POWER_INSTANT = 186
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, *cards: ScriptedCard, init_error: str | None = None, read_s: float = 0.0) -> None:
        self.cards = cards
        self.clock = FakeClock(50.0)
        self.init_error = init_error
        self.read_s = read_s
        self.keeps_old_samples = False
        self.is_open = False
        self.dead = False

    def wall_s(self) -> float:
        return WALL_S + self.clock.now() - 50.0

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NVMLError(self.init_error)
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False
        self._answer("")

    def nvmlDeviceGetCount(self) -> int:
        return self._answer(len(self.cards))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> ScriptedCard:
        return self._answer(self.cards[index])

    def nvmlDeviceGetUUID(self, handle: ScriptedCard | str) -> str:
        return self._answer(handle if isinstance(handle, str) else handle.uuid)

    def nvmlDeviceGetName(self, handle: ScriptedCard) -> str:
        return self._answer(handle.model)

    def nvmlDeviceGetMigMode(self, handle: ScriptedCard) -> list[int]:
        return self._answer(None if handle.mig_slots is None else [int(any(handle.mig_slots)), 0])

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: ScriptedCard) -> int:
        return self._answer(len(handle.mig_slots or ()))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: ScriptedCard, index: int) -> str:
        return self._answer((handle.mig_slots or [])[index])

    def nvmlDeviceGetSamples(self, handle: ScriptedCard, kind: int, since_us: int) -> tuple[int, list[Any]]:
        assert kind == self.NVML_TOTAL_POWER_SAMPLES
        kept = self._answer(handle.samples)
        found = [(us, mw) for us, mw in kept if us > since_us or self.keeps_old_samples]
        if not found:
            raise NVMLError_NotFound("Not Found")
        return 1, [SimpleNamespace(timeStamp=us, sampleValue=SimpleNamespace(uiVal=mw)) for us, mw in found]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: ScriptedCard) -> int:
        self.clock.advance(self.read_s)
        return self._answer(handle.energy_mj)

    def nvmlDeviceGetFieldValues(self, handle: ScriptedCard, wanted: list[int]) -> list[Any]:
        assert wanted == [self.NVML_FI_DEV_POWER_INSTANT]
        self._answer("")
        value = SimpleNamespace(uiVal=handle.instant_mw or 0)
        return [SimpleNamespace(nvmlReturn=3 if handle.instant_mw is None else self.NVML_SUCCESS, value=value)]

    def nvmlDeviceGetPowerUsage(self, handle: ScriptedCard) -> int:
        return self._answer(handle.average_mw)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: ScriptedCard) -> int:
        return self._answer(handle.throttle)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: ScriptedCard) -> int:
        return self._answer(handle.limit_mw)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: ScriptedCard) -> list[Any]:
        pids = self._answer(handle.pids)
        return [SimpleNamespace(pid=pid) for pid in pids]

    def nvmlDeviceGetClockInfo(self, handle: ScriptedCard, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return self._answer(handle.clock_mhz)

    def nvmlDeviceGetMaxClockInfo(self, handle: ScriptedCard, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return self._answer(handle.clock_mhz)

    def nvmlDeviceGetTemperature(self, handle: ScriptedCard, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._answer(handle.temperature_c)

    def _answer(self, value: Any) -> Any:
        if self.dead or value is None:
            raise NVMLError("GPU is lost" if self.dead else "Not Supported")
        return value


def open_scripted(driver: ScriptedDriver, **env: str) -> NvmlMeter:
    return open_nvml(driver=driver, clock=driver.clock, env=env, wall_s=driver.wall_s)


def uuids(meter: NvmlMeter) -> list[str]:
    return [d.key.split("/")[1] for d in meter.domains if d.kind == "power"]


def counter_only(**kwargs: Any) -> ScriptedCard:
    return ScriptedCard(samples=None, **kwargs)


def bare(**kwargs: Any) -> ScriptedCard:
    return ScriptedCard(samples=None, energy_mj=None, **kwargs)


def test_samples_come_first_and_the_counter_second() -> None:
    driver = ScriptedDriver(ScriptedCard())
    with open_scripted(driver) as meter:
        assert driver.is_open
        power, counter = meter.domains
        assert (power.name, power.kind, power.device) == ("gpu0", "power", "NVIDIA H200")
        assert (counter.name, counter.kind) == ("gpu0", "counter")
        assert (power.key, counter.key) == ("nvml/GPU-aa11/power", "nvml/GPU-aa11/counter")
        assert power.period_s == pytest.approx(0.02)
        assert power.resolution_j == pytest.approx(0.5 * 0.02)
        assert power.note is None
        assert meter.poll_s == SAMPLES_POLL_S
    assert not driver.is_open


def test_stamps_become_seconds_of_our_clock() -> None:
    card = ScriptedCard()
    driver = ScriptedDriver(card)
    meter = open_scripted(driver)
    driver.clock.advance(0.5)
    card.samples = samples(200_000, 210_500, start_us=START_US + 100_000)
    readings = meter.poll()
    assert [r.time_s for r in readings] == pytest.approx([50.1, 50.12], abs=1e-6)
    assert [r.value for r in readings] == pytest.approx([200.0, 210.5])
    assert {(r.domain, r.kind, r.within_s) for r in readings} == {("gpu0", "power", 0.0)}
    assert meter.poll_s == SAMPLES_POLL_S


def test_a_pause_between_the_two_clocks_does_not_move_the_samples() -> None:
    card = ScriptedCard()
    driver = ScriptedDriver(card)
    pauses_s = iter([0.3, 0.0, 0.1])

    def paused_wall_s() -> float:
        driver.clock.advance(next(pauses_s))
        return driver.wall_s()

    meter = open_nvml(driver=driver, clock=driver.clock, env={}, wall_s=paused_wall_s)
    card.samples = samples(200_000, start_us=START_US)
    assert meter.poll()[0].time_s == pytest.approx(50.0, abs=1e-6)


@pytest.mark.parametrize("keeps_old_samples", [False, True])
def test_a_poll_returns_new_samples_only(keeps_old_samples: bool) -> None:
    card = ScriptedCard()
    driver = ScriptedDriver(card)
    driver.keeps_old_samples = keeps_old_samples
    meter = open_scripted(driver)
    assert meter.poll() == []
    card.samples = (card.samples or []) + samples(150_000, 160_000, start_us=START_US)
    assert [r.value for r in meter.poll()] == [150.0, 160.0]
    assert meter.poll() == []
    card.samples += samples(170_000, start_us=START_US + 2 * STEP_US)
    assert [r.value for r in meter.poll()] == [170.0]


@settings(deadline=None)
@given(
    powers_mw=st.lists(st.integers(0, 1_000_000), min_size=2, max_size=60),
    polled_every=st.integers(1, 20),
)
def test_the_energy_of_the_samples_is_the_integral_of_power(powers_mw: list[int], polled_every: int) -> None:
    card = ScriptedCard()
    driver = ScriptedDriver(card)
    meter = open_scripted(driver)
    readings: list[Reading] = []
    for i, power_mw in enumerate(powers_mw, 1):
        driver.clock.advance(STEP_US * 1e-6)
        card.samples = (card.samples or []) + [(START_US + i * STEP_US, power_mw)]
        if i % polled_every == 0:
            readings += meter.poll()
    readings += meter.poll()
    curve = Curve.from_readings(meter.domains[0], readings)
    integral_j = sum((a + b) / 2 * 1e-3 * STEP_US * 1e-6 for a, b in pairwise(powers_mw))
    # The stamps are floats of seconds since 1970, good to 0.2 µs.
    assert curve.energy_j[-1] == pytest.approx(integral_j, rel=1e-4, abs=1e-3)
    assert len(readings) == len(powers_mw)


def test_the_counter_checks_the_samples() -> None:
    driver = ScriptedDriver(ScriptedCard(energy_mj=1_234_567), read_s=0.003)
    meter = open_scripted(driver)
    start_s = driver.clock.now()
    (reading,) = meter.check_readings()
    assert (reading.domain, reading.kind, reading.value) == ("gpu0", "counter", pytest.approx(1234.567))
    assert reading.time_s == pytest.approx(start_s + 0.003)
    assert reading.within_s == pytest.approx(0.003)
    assert meter.read_counter("gpu0").value == reading.value
    driver.dead = True
    assert meter.check_readings() == []


def test_samples_without_a_counter() -> None:
    meter = open_scripted(ScriptedDriver(ScriptedCard(energy_mj=None)))
    assert [d.kind for d in meter.domains] == ["power"]
    assert meter.check_readings() == []


@pytest.mark.parametrize("kept", [None, [], samples(100_000, 101_000)])
def test_without_samples_the_counter_is_read_at_its_ticks(kept: list[tuple[int, int]] | None) -> None:
    card = ScriptedCard(samples=kept)
    driver = ScriptedDriver(card)
    meter = open_scripted(driver)
    assert [d.kind for d in meter.domains] == ["counter"]
    assert meter.check_readings() == []
    assert meter.poll()[0].value == pytest.approx(5000.0)
    assert meter.poll_s == TICK_HUNT_S
    card.energy_mj = 5_070_000
    meter.poll()
    assert meter.poll_s == pytest.approx(TICK_SOON_SHARE * TICK_S)
    # A look between two ticks, at the edge of a window, does not start the hunt early.
    driver.clock.advance(0.03)
    meter.poll()
    assert meter.poll_s == pytest.approx(TICK_SOON_SHARE * TICK_S - 0.03)
    driver.clock.advance(meter.poll_s)
    meter.poll()
    assert meter.poll_s == TICK_HUNT_S


def test_the_ticks_follow_the_period_that_was_learned() -> None:
    card = counter_only()
    meter = open_scripted(ScriptedDriver(card))
    meter.domains = (replace(meter.domains[0], period_s=0.02),)
    meter.poll()
    card.energy_mj = 5_070_000
    meter.poll()
    assert meter.poll_s == pytest.approx(TICK_SOON_SHARE * 0.02)


def test_the_tick_of_one_card_does_not_hide_that_of_another() -> None:
    cards = counter_only(), counter_only(uuid="GPU-bb22")
    driver = ScriptedDriver(*cards)
    meter = open_scripted(driver)
    meter.poll()
    cards[1].energy_mj = 5_070_000
    meter.poll()
    assert meter.poll_s == TICK_HUNT_S
    cards[0].energy_mj = 5_070_000
    driver.clock.advance(0.01)
    meter.poll()
    assert meter.poll_s == pytest.approx(TICK_SOON_SHARE * TICK_S - 0.01)


def test_instant_power_is_polled_where_there_is_nothing_else() -> None:
    meter = open_scripted(ScriptedDriver(bare()))
    (domain,) = meter.domains
    assert domain.kind == "power"
    assert domain.note == "no energy counter and no sample buffer: instantaneous power, polled"
    assert [(r.kind, r.value) for r in meter.poll()] == [("power", 90.0)]
    assert meter.poll_s == POLLED_POWER_S


def test_averaged_power_is_the_last_resort() -> None:
    meter = open_scripted(ScriptedDriver(bare(instant_mw=None)))
    (domain,) = meter.domains
    assert domain.note is not None
    assert "averaged power, polled: short work is blurred" in domain.note
    assert meter.poll()[0].value == 80.0


def test_instant_power_that_stops_fails() -> None:
    card = bare()
    meter = open_scripted(ScriptedDriver(card))
    card.instant_mw = None
    with pytest.raises(MeterFailed):
        meter.poll()


def test_unlike_cards_are_polled_for_the_most_demanding() -> None:
    meter = open_scripted(ScriptedDriver(ScriptedCard(), bare(uuid="GPU-bb22")))
    assert meter.poll_s == POLLED_POWER_S
    meter.poll()
    assert meter.poll_s == POLLED_POWER_S


def test_neither_energy_nor_power() -> None:
    driver = ScriptedDriver(ScriptedCard(), bare(uuid="GPU-bb22", instant_mw=None, average_mw=None))
    with pytest.raises(MeterUnavailable, match=r"GPU-bb22.* reports neither energy nor power") as caught:
        open_scripted(driver)
    assert caught.value.fix
    assert not driver.is_open


def test_no_driver() -> None:
    with pytest.raises(MeterUnavailable, match=r"no NVIDIA driver answers .*Driver Not Loaded") as caught:
        open_scripted(ScriptedDriver(init_error="Driver Not Loaded"))
    assert "nvidia-smi" in str(caught.value)


def test_no_card() -> None:
    driver = ScriptedDriver()
    with pytest.raises(MeterUnavailable, match="there is no card"):
        open_scripted(driver)
    assert not driver.is_open


def test_a_driver_that_dies_while_it_is_opened() -> None:
    driver = ScriptedDriver(ScriptedCard())
    driver.dead = True
    with pytest.raises(MeterUnavailable, match=r"does not list its cards .*GPU is lost"):
        open_scripted(driver)


@pytest.mark.parametrize("card", [ScriptedCard(), counter_only(), bare(), bare(instant_mw=None)])
def test_a_driver_that_dies_fails_and_closes(card: ScriptedCard) -> None:
    driver = ScriptedDriver(card)
    with open_scripted(driver) as meter:
        driver.dead = True
        with pytest.raises(MeterFailed, match=r"the NVIDIA driver stopped answering .*GPU is lost") as caught:
            meter.poll()
        assert "nvidia-smi" in str(caught.value)


def test_the_library_is_imported_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ScriptedDriver(ScriptedCard()))
    assert [d.name for d in open_nvml(env={}).domains] == ["gpu0", "gpu0"]


def test_a_card_in_instances_is_measured_whole_with_a_note() -> None:
    card = ScriptedCard(mig_slots=["MIG-1", None, "MIG-2"])
    meter = open_scripted(ScriptedDriver(card, ScriptedCard(uuid="GPU-bb22", mig_slots=[None, None])))
    notes = {(d.name, d.kind): d.note for d in meter.domains}
    assert "whole card" in (notes["gpu0", "power"] or "")
    assert "whole card" in (notes["gpu0", "counter"] or "")
    assert notes["gpu1", "power"] is None


def test_a_card_in_instances_without_a_counter_has_both_notes() -> None:
    (domain,) = open_scripted(ScriptedDriver(bare(mig_slots=["MIG-1"]))).domains
    assert "polled; whole card" in (domain.note or "")


def test_an_instance_names_its_card() -> None:
    driver = ScriptedDriver(ScriptedCard(), ScriptedCard(uuid="GPU-bb22", mig_slots=["MIG-1", None, "MIG-2"]))
    meter = open_scripted(driver, CUDA_VISIBLE_DEVICES="MIG-2")
    assert [d.name for d in meter.domains] == ["gpu0", "gpu0"]
    assert uuids(meter) == ["GPU-bb22"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("1", ["GPU-ab22"]),
        ("2,0", ["GPU-bb33", "GPU-aa11"]),
        ("GPU-bb33,GPU-aa11", ["GPU-bb33", "GPU-aa11"]),
        ("GPU-b", ["GPU-bb33"]),
        ("1,7,0", ["GPU-ab22"]),
    ],
)
def test_the_cards_that_cuda_sees_in_its_order(wanted: str, found: list[str]) -> None:
    driver = ScriptedDriver(*(ScriptedCard(uuid=uuid) for uuid in ("GPU-aa11", "GPU-ab22", "GPU-bb33")))
    meter = open_scripted(driver, CUDA_VISIBLE_DEVICES=wanted)
    assert uuids(meter) == found
    assert [d.name for d in meter.domains if d.kind == "power"] == [f"gpu{i}" for i in range(len(found))]


def test_readings_come_from_the_card_that_was_named() -> None:
    driver = ScriptedDriver(bare(instant_mw=10_000), bare(uuid="GPU-bb22", instant_mw=20_000))
    meter = open_scripted(driver, CUDA_VISIBLE_DEVICES="1,0")
    assert [(r.domain, r.value) for r in meter.poll()] == [("gpu0", 20.0), ("gpu1", 10.0)]


def test_the_order_of_unlike_cards_is_asked_of_cuda() -> None:
    cards = ScriptedCard(model="NVIDIA T4"), ScriptedCard(uuid="GPU-bb22")
    driver = ScriptedDriver(*cards)
    meter = open_nvml(driver=driver, clock=driver.clock, env={}, ask_cuda=lambda: ["GPU-bb22", "GPU-aa11"])
    assert uuids(meter) == ["GPU-bb22", "GPU-aa11"]


@pytest.mark.parametrize("wanted", ["", "-1", "5", "GPU-zz", "0,0"])
def test_all_cards_are_hidden(wanted: str) -> None:
    driver = ScriptedDriver(ScriptedCard(), ScriptedCard(uuid="GPU-bb22"))
    with pytest.raises(MeterUnavailable, match=f"CUDA_VISIBLE_DEVICES='{wanted}' hides all of 2 cards") as caught:
        open_scripted(driver, CUDA_VISIBLE_DEVICES=wanted)
    assert "GPU-aa11, GPU-bb22" in str(caught.value)
    assert not driver.is_open


def test_states() -> None:
    card = ScriptedCard(throttle=0x04 | 0x40 | 0x01, pids=[os.getpid(), 77])
    (state,) = open_scripted(ScriptedDriver(card)).states()
    assert (state.domain, state.clock_mhz, state.clock_max_mhz) == ("gpu0", 1980, 1980)
    assert (state.temperature_c, state.power_limit_w) == (41, pytest.approx(700.0))
    # The lowest bit means that the card rests, which slows nothing down.
    assert state.throttle == ("power cap", "hardware thermal slowdown")
    assert state.other_pids == (77,)


def test_states_that_the_driver_does_not_report() -> None:
    card = ScriptedCard(throttle=None, pids=None, limit_mw=None, clock_mhz=None, temperature_c=None)
    (state,) = open_scripted(ScriptedDriver(card)).states()
    assert state.clock_mhz is state.clock_max_mhz is state.temperature_c is state.power_limit_w is None
    assert state.throttle == state.other_pids == ()


def test_clocks_of_the_cards_that_report_them() -> None:
    cards = ScriptedCard(uuid="GPU-a"), ScriptedCard(uuid="GPU-b", clock_mhz=None), ScriptedCard(uuid="GPU-c")
    driver = ScriptedDriver(*cards)
    meter = open_scripted(driver)
    assert meter.clocks() == {"gpu0": 1980.0, "gpu2": 1980.0}
    driver.dead = True
    assert meter.clocks() == {}


def test_clocks_ask_for_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read between two windows: the other questions take milliseconds."""
    driver = ScriptedDriver(ScriptedCard())
    meter = open_scripted(driver)
    asked: list[str] = []
    answer = driver._answer
    monkeypatch.setattr(driver, "_answer", lambda value: (asked.append(value), answer(value))[1])
    meter.clocks()
    assert asked == [1980]


def test_states_of_a_driver_that_is_gone() -> None:
    driver = ScriptedDriver(ScriptedCard())
    meter = open_scripted(driver)
    driver.dead = True
    assert [s.domain for s in meter.states()] == ["gpu0"]
