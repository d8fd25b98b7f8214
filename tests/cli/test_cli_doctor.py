"""`joulediff doctor`: the report on each meter, the verdict, the exit code, and the cache of sensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_builders import make_domain, make_machine_rest, noisy, steady, write_script
from joulediff.cli import main
from joulediff.measuring.doctor import check_machine
from joulediff.measuring.host_use import CpuUse
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.model.measurement import Checkup


@pytest.fixture(autouse=True)
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    make_machine_rest(monkeypatch)


@pytest.fixture
def flickering(tmp_path: Path) -> str:
    """A quiet meter whose last digit changes, so that `doctor` can measure its period and resolution."""
    return write_script(tmp_path / "flicker.json", (make_domain("gpu0", period_s=0.5), flicker(70.0)))


def flicker(power_w: float) -> Any:
    draw = np.random.default_rng(3)
    return lambda time_s: power_w + 0.1 * draw.integers(0, 4, len(time_s))


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["doctor", "--wait", "0", *words])
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return run


def check(meter: str) -> Checkup:
    return check_machine(meter=meter, wait_s=0.0, clock=FakeClock())


def test_json_has_the_fields_of_its_schema(doctor: Any, flickering: str) -> None:
    code, out, err = doctor("--meter", f"{flickering},estimated", "--json", "-")
    found = json.loads(out)
    assert code == 0, found["advice"]
    assert err == ""
    assert set(found) >= {"schema", "meters", "quiet", "advice", "verdict"}
    assert found["schema"] == "joulediff.doctor/1"
    assert found["quiet"] is True
    assert found["advice"] == []
    assert isinstance(found["verdict"], str)
    assert [meter["name"] for meter in found["meters"]] == ["scripted", "estimated"]
    for meter in found["meters"]:
        assert set(meter) == {"name", "available", "domains", "reason", "fix"}
        assert meter["available"] is True
        assert meter["reason"] is None
        for domain in meter["domains"]:
            assert set(domain) >= {"name", "kind", "period_s", "resolution_j", "source"}
    assert found["meters"][0]["domains"][0]["source"] == "metered"
    assert found["meters"][1]["domains"][0]["source"] == "estimated"


def test_report(doctor: Any, flickering: str) -> None:
    code, out, _ = doctor("--meter", flickering)
    assert code == 0
    assert "scripted  gpu0    power" in out
    assert "gpu0 idles at 70." in out
    assert "Scripted 9000" in out
    assert out.splitlines()[-1].startswith("This machine measures gpu0")


def test_json_to_a_file_comes_with_the_report(doctor: Any, tmp_path: Path, flickering: str) -> None:
    code, out, _ = doctor("--meter", flickering, "--json", str(tmp_path / "doctor.json"))
    assert code == 0
    assert "This machine measures gpu0" in out
    assert json.loads((tmp_path / "doctor.json").read_text(encoding="utf-8"))["quiet"] is True


def test_a_place_for_json_that_cannot_be_is_refused_first(doctor: Any, flickering: str) -> None:
    code, out, err = doctor("--meter", flickering, "--json", "nowhere/doctor.json")
    assert code == 1
    assert "cannot write nowhere/doctor.json" in err
    assert out == ""


def test_nothing_to_measure_with(doctor: Any) -> None:
    code, out, _ = doctor("--meter", "scripted:nowhere.json", "--json", "-")
    found = json.loads(out)
    assert code == 1
    assert found["quiet"] is False
    assert "no energy can be measured on this machine" in found["verdict"]
    assert found["meters"][0]["available"] is False
    assert "nowhere.json" in found["meters"][0]["reason"]


def test_nothing_to_measure_with_has_no_empty_table(doctor: Any) -> None:
    code, out, _ = doctor("--meter", "scripted:nowhere.json")
    assert code == 1
    assert "resolution" not in out
    assert out.splitlines()[-1] == "No energy can be measured on this machine."


def test_only_an_estimate_is_not_enough() -> None:
    found = check_machine(meter="estimated", wait_s=0.0)
    assert found.exit_code == 2
    assert "no energy sensor" in found.verdict


def test_a_restless_device(tmp_path: Path) -> None:
    found = check(write_script(tmp_path / "noisy.json", (make_domain(), noisy(5.0, 500.0))))
    assert found.exit_code == 2
    assert not found.quiet.quiet
    assert "not quiet" in found.verdict
    assert any("the idle power of cpu varies" in text for text in found.advice)


def test_a_busy_cpu(flickering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(CpuUse(10.0 * i, 0.0, 0.0) for i in range(100))
    monkeypatch.setattr("joulediff.measuring.idle.read_cpu_use", lambda: next(looks))
    found = check(flickering)
    assert found.exit_code == 2
    assert any("other programs keep" in text for text in found.advice)


@pytest.mark.parametrize("name", ["powerlog", "scripted"])
def test_a_meter_that_reads_a_file_says_how(name: str) -> None:
    report = check(name).meters[0]
    assert not report.available
    assert report.reason == "reads a file"
    assert f"--meter {name}:FILE" in str(report.fix)


def test_an_unknown_meter_lists_the_known(doctor: Any) -> None:
    code, out, _ = doctor("--meter", "voltmeter", "--json", "-")
    meter = json.loads(out)["meters"][0]
    assert code == 1
    assert "voltmeter" in meter["reason"]
    assert "nvml" in meter["fix"]


def test_every_meter_is_either_there_or_says_why(doctor: Any) -> None:
    code, out, _ = doctor("--json", "-")
    found = json.loads(out)
    names = [meter["name"] for meter in found["meters"]]
    assert names == ["nvml", "amdsmi", "apple", "rapl", "estimated", "powerlog", "scripted"]
    assert code in (0, 2)  # the estimate is always there
    for meter in found["meters"]:
        assert bool(meter["domains"]) is meter["available"]
        assert bool(meter["reason"]) is not meter["available"]


def test_what_was_learned_is_kept_and_used(cache: Path, flickering: str) -> None:
    found = check(flickering)
    learned = found.meters[0].learned[0]
    assert found.meters[0].domains[0].period_s == pytest.approx(0.01, rel=0.2)
    kept = json.loads((cache / "sensors.json").read_text())
    assert kept["schema"] == "joulediff.sensors/1"
    [(key, row)] = kept["sensors"].items()
    assert key.endswith("/scripted/gpu0")
    assert row["period_s"] == learned.period_s
    assert row["resolution_j"] == learned.resolution_j
    assert SensorCache().apply(make_domain("gpu0", period_s=0.5)).period_s == learned.period_s


def test_a_sensor_that_never_moves_teaches_nothing(doctor: Any, tmp_path: Path) -> None:
    meter = write_script(tmp_path / "still.json", (make_domain(), steady(40.0)))
    code, out, _ = doctor("--meter", meter, "--json", "-")
    domain = json.loads(out)["meters"][0]["domains"][0]
    assert code == 0
    assert domain["found_by_measuring"] is False
    assert domain["overhead_share"] is None


def test_a_cache_that_cannot_be_written_is_reported(cache: Path, flickering: str) -> None:
    cache.write_text("a file where the folder should be")
    found = check(flickering)
    assert found.exit_code == 0
    assert any("cannot be written" in text for text in found.advice)


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_longer_than_the_terminal(
    doctor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)  # so that paths are short
    device = "A card with a name that goes on and on, as the names of cards do these days, revision 7b"
    meter = write_script(tmp_path / "long.json", (make_domain("gpu0", device=device), noisy(5.0, 500.0)))
    _, out, _ = doctor("--meter", f"{meter},scripted:nowhere.json,estimated,rapl,powerlog")
    assert max(map(len, out.splitlines())) <= columns
    assert not any(line != line.rstrip() for line in out.splitlines())
    assert "…" not in out
