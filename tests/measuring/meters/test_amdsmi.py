from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.meters.amdsmi import NO_COUNTER, open_amdsmi
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterFailed, MeterUnavailable


class AmdSmiError(Exception):
    pass


@dataclass
class ScriptedCard:
    """What a card answers; None for a call it does not support."""

    serial: int = 0xAA
    energy: dict[str, Any] | None = field(
        default_factory=lambda: {"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 1}
    )
    power: dict[str, Any] | None = field(default_factory=lambda: {"socket_power": "N/A", "average_socket_power": 90})
    clock: dict[str, Any] | None = field(default_factory=lambda: {"clk": 1300, "max_clk": 2100})
    cap: dict[str, Any] | None = field(default_factory=lambda: {"power_cap": 750_000_000})
    temperatures: dict[str, Any] = field(default_factory=lambda: {"HOTSPOT": 55, "EDGE": 40})
    processes: list[Any] | None = field(default_factory=lambda: [{"pid": os.getpid()}, {"pid": 77}])
    model: str = "AMD Instinct MI300X"
    hip_id: int | str | None = None


class ScriptedDriver:
    """The calls of `amdsmi` that the meter uses; a handle is a place in `cards`."""

    AmdSmiException = AmdSmiError
    AmdSmiClkType = SimpleNamespace(GFX="GFX")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="HOTSPOT", EDGE="EDGE")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="CURRENT")

    def __init__(self, *cards: ScriptedCard, clock: FakeClock | None = None, init_error: str | None = None) -> None:
        self.cards = cards
        self.clock = clock or FakeClock()
        self.init_error = init_error
        self.is_open = False
        self.dead = False

    def amdsmi_init(self) -> None:
        if self.init_error:
            raise AmdSmiError(self.init_error)
        self.is_open = True

    def amdsmi_shut_down(self) -> None:
        self.is_open = False
        self._answer("")

    def amdsmi_get_processor_handles(self) -> list[int]:
        return self._answer(list(range(len(self.cards))))

    def amdsmi_get_energy_count(self, handle: int) -> Any:
        return self._answer(self.cards[handle].energy)

    def amdsmi_get_power_info(self, handle: int) -> Any:
        return self._answer(self.cards[handle].power)

    def amdsmi_get_clock_info(self, handle: int, kind: str) -> Any:
        assert kind == "GFX"
        return self._answer(self.cards[handle].clock)

    def amdsmi_get_temp_metric(self, handle: int, sensor: str, metric: str) -> Any:
        assert metric == "CURRENT"
        return self._answer(self.cards[handle].temperatures.get(sensor))

    def amdsmi_get_power_cap_info(self, handle: int) -> Any:
        return self._answer(self.cards[handle].cap)

    def amdsmi_get_gpu_process_list(self, handle: int) -> Any:
        return self._answer(self.cards[handle].processes)

    def amdsmi_get_gpu_device_uuid(self, handle: int) -> Any:
        return self._answer(f"{self.cards[handle].serial:02x}ff74a1-0000-1000")

    def amdsmi_get_gpu_asic_info(self, handle: int) -> Any:
        card = self.cards[handle]
        return self._answer({"market_name": card.model, "asic_serial": f"0x{card.serial:016X}"})

    def amdsmi_get_gpu_enumeration_info(self, handle: int) -> Any:
        hip_id = self.cards[handle].hip_id
        return self._answer(None if hip_id is None else {"hip_id": hip_id, "hip_uuid": ""})

    def _answer(self, value: Any) -> Any:
        self.clock.advance(0.001)
        if self.dead or value is None:
            raise AmdSmiError("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED")
        return value


def silent(model: str = "AMD Instinct MI300X", **kwargs: Any) -> ScriptedCard:
    zero = {"energy_accumulator": 0, "counter_resolution": 15.3}
    return ScriptedCard(model=model, energy=zero, power={"socket_power": 0, "average_socket_power": 0}, **kwargs)


def test_reads_the_counter_in_joules() -> None:
    driver = ScriptedDriver(ScriptedCard(), ScriptedCard(serial=0xBB))
    with open_amdsmi(driver=driver, clock=driver.clock, env={}) as meter:
        assert [(d.name, d.kind, d.device) for d in meter.domains] == [
            ("gpu0", "counter", "AMD Instinct MI300X"),
            ("gpu1", "counter", "AMD Instinct MI300X"),
        ]
        assert meter.domains[1].key == "amdsmi/GPU-00000000000000BB/counter"
        assert meter.domains[0].note is None
        readings = meter.poll()
        assert [r.value for r in readings] == pytest.approx([15.3, 15.3])
        assert readings[0].within_s == pytest.approx(0.001)
        assert driver.is_open
    assert not driver.is_open


def test_an_old_library_calls_the_counter_power() -> None:
    card = ScriptedCard(energy={"power": 2_000_000, "counter_resolution": 15.3})
    (reading,) = open_amdsmi(driver=ScriptedDriver(card), env={}).poll()
    assert reading.value == pytest.approx(30.6)


def test_the_counter_makes_a_curve() -> None:
    card = ScriptedCard()
    driver = ScriptedDriver(card)
    meter = open_amdsmi(driver=driver, clock=driver.clock, env={})
    readings = []
    for ticks in (1_000_000, 2_000_000, 3_000_000):
        card.energy = {"energy_accumulator": ticks, "counter_resolution": 15.3}
        readings += meter.poll()
        driver.clock.advance(0.02)
    assert Curve.from_readings(meter.domains[0], readings).energy_j.tolist() == pytest.approx([15.3, 30.6])


def test_first_gpu_numbers_the_domains() -> None:
    driver = ScriptedDriver(ScriptedCard(), ScriptedCard())
    assert [d.name for d in open_amdsmi(driver=driver, env={}, first_gpu=4).domains] == ["gpu4", "gpu5"]


@pytest.mark.parametrize(
    "energy",
    [
        None,
        {"energy_accumulator": 0, "counter_resolution": 15.3},
        {"energy_accumulator": 0xFFFFFFFFFFFFFFFF, "counter_resolution": 15.3},
        {"energy_accumulator": 5, "counter_resolution": 0.0},
        {"energy_accumulator": "N/A", "counter_resolution": 15.3},
        {},
    ],
)
def test_without_a_counter_power_is_polled(energy: dict[str, Any] | None) -> None:
    meter = open_amdsmi(driver=ScriptedDriver(ScriptedCard(energy=energy)), env={})
    (domain,) = meter.domains
    assert (domain.kind, domain.note) == ("power", NO_COUNTER)
    (reading,) = meter.poll()
    assert (reading.kind, reading.value) == ("power", 90.0)


@pytest.mark.parametrize(
    ("power", "power_w"),
    [
        ({"socket_power": 120, "current_socket_power": 121, "average_socket_power": 122}, 120.0),
        ({"current_socket_power": 121, "average_socket_power": "N/A"}, 121.0),
        ({"socket_power": 0, "current_socket_power": 0xFFFFFFFF, "average_socket_power": 122}, 122.0),
    ],
)
def test_the_first_power_that_is_reported(power: dict[str, Any], power_w: float) -> None:
    (reading,) = open_amdsmi(driver=ScriptedDriver(ScriptedCard(energy=None, power=power)), env={}).poll()
    assert reading.value == power_w


@pytest.mark.parametrize("power", [None, {}, {"socket_power": "N/A"}, {"average_socket_power": 0}])
def test_neither_energy_nor_power(power: dict[str, Any] | None) -> None:
    driver = ScriptedDriver(ScriptedCard(), ScriptedCard(energy=None, power=power, serial=0xCD))
    with pytest.raises(MeterUnavailable, match="neither energy nor power") as caught:
        open_amdsmi(driver=driver, env={})
    assert "00CD" in str(caught.value)
    assert not driver.is_open


def test_the_first_die_of_an_mi250_includes_both() -> None:
    name = "AMD Instinct MI250X"
    driver = ScriptedDriver(ScriptedCard(model=name), silent(name), ScriptedCard(model=name), silent(name))
    meter = open_amdsmi(driver=driver, env={})
    assert [d.name for d in meter.domains] == ["gpu0", "gpu2"]
    assert all(d.note == "both dies of its board" for d in meter.domains)
    assert [r.domain for r in meter.poll()] == ["gpu0", "gpu2"]


def test_the_second_die_of_an_mi250_alone_cannot_be_seen() -> None:
    driver = ScriptedDriver(ScriptedCard(model="AMD Instinct MI250X"), silent("AMD Instinct MI250X"))
    with pytest.raises(MeterUnavailable, match="neither energy nor power"):
        open_amdsmi(driver=driver, env={"HIP_VISIBLE_DEVICES": "1"})


def test_cards_are_in_the_order_of_hip() -> None:
    cards = [ScriptedCard(serial=s, hip_id=h) for s, h in ((0xA0, 2), (0xA1, 0), (0xA2, 1))]
    meter = open_amdsmi(driver=ScriptedDriver(*cards), env={})
    assert [d.key[-11:-8] for d in meter.domains] == ["0A1", "0A2", "0A0"]


def test_visible_devices_pick_and_order() -> None:
    cards = [ScriptedCard(serial=0xA0 + i) for i in range(4)]
    env = {"ROCR_VISIBLE_DEVICES": "3,GPU-00000000000000a1,0", "HIP_VISIBLE_DEVICES": "1,0"}
    meter = open_amdsmi(driver=ScriptedDriver(*cards), env=env)
    assert [(d.name, d.key[-11:-8]) for d in meter.domains] == [("gpu0", "0A1"), ("gpu1", "0A3")]


def test_all_cards_are_hidden() -> None:
    driver = ScriptedDriver(ScriptedCard())
    with pytest.raises(MeterUnavailable, match="HIP_VISIBLE_DEVICES=-1 hides all of 1 AMD cards"):
        open_amdsmi(driver=driver, env={"HIP_VISIBLE_DEVICES": "-1"})
    assert not driver.is_open


def test_no_driver_no_card() -> None:
    with pytest.raises(MeterUnavailable, match="no AMD driver answers"):
        open_amdsmi(driver=ScriptedDriver(init_error="Driver not loaded"), env={})
    with pytest.raises(MeterUnavailable, match="there is no card"):
        open_amdsmi(driver=ScriptedDriver(), env={})


def test_a_driver_that_dies_fails_and_closes() -> None:
    driver = ScriptedDriver(ScriptedCard())
    with open_amdsmi(driver=driver, env={}) as meter:
        driver.dead = True
        with pytest.raises(MeterFailed, match="gpu0: the AMD driver stopped answering") as caught:
            meter.poll()
        assert "Error code: 2 | AMDSMI_STATUS_NOT_SUPPORTED" in str(caught.value)


def test_a_counter_that_falls_to_zero_is_no_reading() -> None:
    card = ScriptedCard()
    meter = open_amdsmi(driver=ScriptedDriver(card), env={})
    card.energy = {"energy_accumulator": 0, "counter_resolution": 15.3}
    with pytest.raises(MeterFailed, match="shows no energy any more"):
        meter.poll()


def test_states() -> None:
    (state,) = open_amdsmi(driver=ScriptedDriver(ScriptedCard()), env={}).states()
    assert (state.domain, state.clock_mhz, state.clock_max_mhz) == ("gpu0", 1300.0, 2100.0)
    assert (state.temperature_c, state.power_limit_w, state.other_pids) == (55.0, 750.0, (77,))


def test_states_that_the_driver_does_not_report() -> None:
    card = ScriptedCard(clock=None, cap=None, temperatures={}, processes=None)
    (state,) = open_amdsmi(driver=ScriptedDriver(card), env={}).states()
    assert state.clock_mhz is state.clock_max_mhz is state.temperature_c is state.power_limit_w is None
    assert state.other_pids == ()


def test_clocks_of_the_cards_that_report_them() -> None:
    cards = ScriptedCard(), ScriptedCard(clock={"clk": "N/A"}), ScriptedCard(clock=None)
    assert open_amdsmi(driver=ScriptedDriver(*cards), env={}).clocks() == {"gpu0": 1300.0}


def test_states_of_a_card_with_gaps() -> None:
    card = ScriptedCard(
        clock={"clk": "N/A", "max_clk": 1700}, cap={"power_cap": 0}, temperatures={"EDGE": 41}, processes=[object()]
    )
    (state,) = open_amdsmi(driver=ScriptedDriver(card), env={}).states()
    assert (state.clock_mhz, state.clock_max_mhz) == (None, 1700.0)
    assert (state.temperature_c, state.power_limit_w, state.other_pids) == (41.0, None, ())


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(MeterUnavailable, match="amdsmi") as caught:
        open_amdsmi(env={})
    assert "pip install 'joulediff[amd]'" in str(caught.value)


def test_the_library_finds_no_rocm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "amdsmi.py").write_text("print('Unable to find libamd_smi.so')\n{}['libamd_smi.so']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    with pytest.raises(MeterUnavailable, match=r"libamd_smi\.so"):
        open_amdsmi(env={})
    assert capsys.readouterr().out == ""


def test_the_library_is_imported_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", ScriptedDriver(ScriptedCard()))
    assert [d.name for d in open_amdsmi(env={}).domains] == ["gpu0"]
