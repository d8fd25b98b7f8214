from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from joulediff.measuring.meters import METER_NAMES, REAL_METERS, open_meters
from joulediff.measuring.meters.estimated import EstimatedMeter
from joulediff.measuring.meters.powerlog import PowerLogMeter
from joulediff.measuring.meters.scripted import FakeClock, ScriptedMeter, save_script
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.model.errors import JoulediffError, MeterUnavailable
from joulediff.model.measurement import Domain, Learned, Reading


def domain(name: str) -> Domain:
    return Domain(name, "power", "a card", f"key/{name}", 0.02, 0.01, repeat_share=0.01, window_s=0.5)


class FoundMeter(ScriptedMeter):
    """A meter of this machine that remembers whether it was closed, and how it was opened."""

    def __init__(self, name: str, *domains: str, close_error: Exception | None = None) -> None:
        super().__init__([domain(d) for d in domains], [], clock=FakeClock())
        self.name = name
        self.options: dict[str, Any] = {}
        self.is_closed = False
        self._close_error = close_error

    def close(self) -> None:
        self.is_closed = True
        if self._close_error is not None:
            raise self._close_error


Furnish = Callable[..., None]


@pytest.fixture
def furnish(monkeypatch: pytest.MonkeyPatch) -> Furnish:
    """Return what gives this machine just the meters it is called with."""

    def opener(name: str, meter: FoundMeter | None) -> Callable[..., FoundMeter]:
        def open_it(**options: Any) -> FoundMeter:
            if meter is None:
                raise MeterUnavailable(f"there is no {name} here", fix=f"buy a {name}")
            meter.options = options
            return meter

        return open_it

    def put(*meters: FoundMeter) -> None:
        found = {meter.name: meter for meter in meters}
        for name in REAL_METERS:
            monkeypatch.setattr(f"joulediff.measuring.meters.{name}.open_{name}", opener(name, found.get(name)))

    put()
    return put


def names(meters: list[Any]) -> list[str]:
    return [meter.name for meter in meters]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    save_script(path, [domain("gpu0")], [Reading("gpu0", "power", 0.0, 5.0)])
    return path


def test_auto_where_there_is_nothing(furnish: Furnish) -> None:
    with open_meters("auto", clock=FakeClock()) as opened:
        (meter,) = opened.meters
        assert isinstance(meter, EstimatedMeter)
        assert {d.source for d in meter.domains} == {"estimated"}
        assert tuple(opened.missing) == REAL_METERS
        assert str(opened.missing["rapl"]) == "there is no rapl here\n  buy a rapl"
        assert opened.remarks == []


def test_auto_is_the_default(furnish: Furnish) -> None:
    with open_meters() as opened:
        assert names(opened.meters) == ["estimated"]


def test_auto_takes_all_there_are(furnish: Furnish) -> None:
    nvml, rapl = FoundMeter("nvml", "gpu0", "gpu1"), FoundMeter("rapl", "cpu0", "cpu1", "dram0")
    clock = FakeClock()
    furnish(nvml, rapl)
    with open_meters("auto", clock=clock) as opened:
        assert opened.meters == [nvml, rapl]
        assert list(opened.missing) == ["amdsmi", "apple"]
        assert nvml.options["clock"] is clock
        assert not nvml.is_closed
    assert nvml.is_closed
    assert rapl.is_closed


def test_auto_numbers_the_cards_of_two_makers(furnish: Furnish) -> None:
    amdsmi = FoundMeter("amdsmi", "gpu2")
    furnish(FoundMeter("nvml", "gpu0", "gpu1"), amdsmi)
    with open_meters("auto") as opened:
        assert names(opened.meters) == ["nvml", "amdsmi", "estimated"]
        assert amdsmi.options["first_gpu"] == 2


def test_auto_leaves_out_the_second_meter_of_a_domain(furnish: Furnish) -> None:
    apple, rapl = FoundMeter("apple", "cpu", "gpu0"), FoundMeter("rapl", "cpu")
    furnish(apple, rapl)
    with open_meters("auto") as opened:
        assert opened.meters == [apple]
        assert "apple and rapl both measure cpu" in str(opened.missing["rapl"])
        assert rapl.is_closed
        assert not apple.is_closed


def test_auto_closes_what_it_opened_when_it_fails(furnish: Furnish) -> None:
    nvml = FoundMeter("nvml", "gpu0")
    furnish(nvml)
    with pytest.raises(MeterUnavailable, match="--cpu-watts -1"):
        open_meters("auto", cpu_watts=-1.0)
    assert nvml.is_closed


@pytest.mark.parametrize("name", REAL_METERS)
def test_a_real_meter_by_name(furnish: Furnish, name: str) -> None:
    meter = FoundMeter(name, "thing")
    furnish(meter)
    with open_meters(name) as opened:
        assert opened.meters == [meter]
        assert opened.missing == {}


@pytest.mark.parametrize("name", REAL_METERS)
def test_a_meter_asked_for_by_name_must_be_there(furnish: Furnish, name: str) -> None:
    with pytest.raises(MeterUnavailable, match=f"there is no {name} here"):
        open_meters(name)


def write_log(folder: Path, newest_s: float) -> Path:
    log = folder / "wall.csv"
    rows = [f"{newest_s - 2 + i},{5 + i}" for i in range(3)]
    log.write_text("\n".join(["time,watts", *rows, ""]))
    return log


def test_names_and_files_separated_by_commas(furnish: Furnish, script: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path, time.time())
    spec = f" estimated, scripted:{script} ,powerlog:{log},"
    with open_meters(spec, clock=FakeClock(), cpu_watts=3.0) as opened:
        estimated, scripted, powerlog = opened.meters
        assert isinstance(estimated, EstimatedMeter)
        assert estimated.watts == 3.0
        assert isinstance(scripted, ScriptedMeter)
        assert isinstance(powerlog, PowerLogMeter)
        assert scripted.poll()[0].value == 5.0


def test_a_file_name_may_hold_a_colon(furnish: Furnish, script: Path) -> None:
    renamed = script.rename(script.with_name("a:b.json"))
    with open_meters(f"scripted:{renamed}", clock=FakeClock()) as opened:
        assert names(opened.meters) == [f"scripted:{renamed}"]


def test_the_clock_of_a_log_may_be_off(furnish: Furnish, tmp_path: Path) -> None:
    log = write_log(tmp_path, time.time() - 1000.0)
    with pytest.raises(MeterUnavailable, match=r"is 100. s old") as caught:
        open_meters(f"powerlog:{log}", clock=FakeClock())
    assert "--clock-offset" in str(caught.value)
    with open_meters(f"powerlog:{log}", clock=FakeClock(), clock_offset_s=1000.0) as opened:
        assert opened.meters[0].poll()[-1].time_s == pytest.approx(0.0, abs=5.0)


@pytest.mark.parametrize("spec", ["", " ", ",", ",,"])
def test_no_name_at_all(furnish: Furnish, spec: str) -> None:
    with pytest.raises(MeterUnavailable, match="no meter was named") as caught:
        open_meters(spec)
    assert f"auto {' '.join(METER_NAMES)}" in str(caught.value)


def test_an_unknown_name_closes_the_others(furnish: Furnish) -> None:
    nvml = FoundMeter("nvml", "gpu0")
    furnish(nvml)
    with pytest.raises(MeterUnavailable, match="no meter is called 'nvlm'") as caught:
        open_meters("nvml,nvlm")
    assert f"there are: auto {' '.join(METER_NAMES)}" in str(caught.value)
    assert nvml.is_closed


def test_a_meter_that_is_not_there_closes_the_others(furnish: Furnish) -> None:
    nvml = FoundMeter("nvml", "gpu0")
    furnish(nvml)
    with pytest.raises(MeterUnavailable, match="there is no rapl here"):
        open_meters("nvml,rapl")
    assert nvml.is_closed


def test_two_meters_of_one_domain_are_refused(furnish: Furnish, script: Path) -> None:
    nvml = FoundMeter("nvml", "gpu0")
    furnish(nvml)
    with pytest.raises(MeterUnavailable, match=r"nvml and scripted:.* both measure gpu0") as caught:
        open_meters(f"nvml,scripted:{script}")
    assert caught.value.fix == "leave one out: --meter nvml"
    assert nvml.is_closed


def test_samples_and_a_counter_of_one_meter_are_no_twins(furnish: Furnish) -> None:
    furnish(FoundMeter("nvml", "gpu0", "gpu0"))
    with open_meters("nvml") as opened:
        assert [d.name for d in opened.meters[0].domains] == ["gpu0", "gpu0"]


@pytest.mark.parametrize("name", ["powerlog", "scripted"])
@pytest.mark.parametrize("ending", ["", ":"])
def test_a_meter_that_reads_a_file_needs_one(furnish: Furnish, name: str, ending: str) -> None:
    with pytest.raises(MeterUnavailable, match=f"the meter {name} reads a file") as caught:
        open_meters(name + ending)
    assert f"--meter {name}:FILE" in str(caught.value)


@pytest.mark.parametrize("name", ["powerlog", "scripted"])
def test_a_file_that_is_not_there(furnish: Furnish, name: str, tmp_path: Path) -> None:
    with pytest.raises(MeterUnavailable, match=r"none\.file"):
        open_meters(f"{name}:{tmp_path / 'none.file'}")


def test_all_meters_are_closed_even_when_one_cannot_be(furnish: Furnish) -> None:
    nvml = FoundMeter("nvml", "gpu0", close_error=JoulediffError("stuck"))
    rapl = FoundMeter("rapl", "cpu", close_error=JoulediffError("stuck too"))
    furnish(nvml, rapl)
    with pytest.raises(JoulediffError, match="stuck"), open_meters("auto"):
        pass
    assert nvml.is_closed
    assert rapl.is_closed


def test_all_meters_are_closed_when_the_program_fails(furnish: Furnish) -> None:
    nvml = FoundMeter("nvml", "gpu0")
    furnish(nvml)
    with pytest.raises(ZeroDivisionError), open_meters("auto"):
        raise ZeroDivisionError
    assert nvml.is_closed


def test_what_was_learned_is_used(furnish: Furnish, tmp_path: Path) -> None:
    cache = SensorCache(tmp_path, machine="host")
    cache.store([Learned("key/gpu0", period_s=0.123, resolution_j=0.5, call_s=0.0, overhead_share=0.0)])
    furnish(FoundMeter("nvml", "gpu0", "gpu1"))
    with open_meters("nvml", cache=cache) as opened:
        assert [d.period_s for d in opened.meters[0].domains] == [0.123, 0.02]
        assert opened.remarks == []


def test_a_broken_cache_is_a_remark(furnish: Furnish, tmp_path: Path) -> None:
    (tmp_path / "sensors.json").write_text("{")
    with open_meters("auto", cache=SensorCache(tmp_path, machine="host")) as opened:
        assert names(opened.meters) == ["estimated"]
        assert "sensors.json is ignored" in opened.remarks[0]


def test_the_same_meter_twice_is_refused(furnish: Furnish, script: Path) -> None:
    with pytest.raises(MeterUnavailable, match="both measure gpu0"):
        open_meters(f"scripted:{script},scripted:{script}", clock=FakeClock())
