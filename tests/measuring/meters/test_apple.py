from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from joulediff.measuring.meters.apple import open_apple
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterFailed, MeterUnavailable


@dataclass(frozen=True)
class Metrics:
    cpu_total_mj: int | None = 1_000
    gpu_mj: int | None = 2_000
    gpu_sram_mj: int | None = 30
    dram_mj: int | None = 400
    ane_mj: int | None = 0


@dataclass
class ScriptedMonitor:
    """Answers with `metrics`, or raises `error`."""

    clock: FakeClock = field(default_factory=FakeClock)
    metrics: Metrics = field(default_factory=Metrics)
    error: Exception | None = None

    def get_cumulative_energy(self) -> Metrics:
        self.clock.advance(0.001)
        if self.error is not None:
            raise self.error
        return self.metrics


def pretend(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)


def test_reads_every_domain_in_joules() -> None:
    monitor = ScriptedMonitor()
    meter = open_apple(monitor=monitor, clock=monitor.clock)
    readings = meter.poll()
    assert {r.domain: r.value for r in readings} == pytest.approx({"cpu": 1.0, "gpu0": 2.03, "dram": 0.4, "ane": 0.0})
    assert {r.kind for r in readings} == {"counter"}
    assert readings[0].time_s == pytest.approx(0.002)
    assert readings[0].within_s == pytest.approx(0.001)


def test_the_domain_is_labelled_as_a_model() -> None:
    meter = open_apple(monitor=ScriptedMonitor())
    assert {d.source for d in meter.domains} == {"estimated"}
    assert all(d.note and "model" in d.note for d in meter.domains)


def test_a_chip_without_memory_and_sram_counters() -> None:
    monitor = ScriptedMonitor(metrics=Metrics(dram_mj=None, gpu_sram_mj=None))
    meter = open_apple(monitor=monitor)
    assert [d.name for d in meter.domains] == ["cpu", "gpu0", "ane"]
    assert meter.poll()[1].value == pytest.approx(2.0)


def test_gpu_sram_alone_is_no_gpu() -> None:
    meter = open_apple(monitor=ScriptedMonitor(metrics=Metrics(gpu_mj=None)))
    assert "gpu0" not in [d.name for d in meter.domains]


@pytest.mark.parametrize("lost", ["cpu_total_mj", "gpu_mj", "gpu_sram_mj", "dram_mj", "ane_mj"])
def test_a_field_that_turns_none_fails(lost: str) -> None:
    monitor = ScriptedMonitor()
    meter = open_apple(monitor=monitor)
    monitor.metrics = replace(monitor.metrics, **{lost: None})
    with pytest.raises(MeterFailed, match=lost):
        meter.poll()


@pytest.mark.parametrize("error", [RuntimeError("gone"), ValueError("unit xJ"), OSError("IOKit")])
def test_library_errors(error: Exception) -> None:
    monitor = ScriptedMonitor()
    meter = open_apple(monitor=monitor)
    monitor.error = error
    with pytest.raises(MeterFailed, match=str(error)):
        meter.poll()
    with pytest.raises(MeterUnavailable, match=str(error)):
        open_apple(monitor=monitor)


def test_a_chip_that_shows_nothing() -> None:
    with pytest.raises(MeterUnavailable, match="no energy of this chip"):
        open_apple(monitor=ScriptedMonitor(metrics=Metrics(None, None, None, None, None)))


@pytest.mark.parametrize(("system", "machine"), [("Linux", "x86_64"), ("Linux", "arm64"), ("Darwin", "x86_64")])
def test_other_machines(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    pretend(monkeypatch, system, machine)
    with pytest.raises(MeterUnavailable, match="this is not Apple silicon"):
        open_apple()


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "Darwin", "arm64")
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", None)
    with pytest.raises(MeterUnavailable, match="zeus_apple_silicon") as caught:
        open_apple()
    assert "pip install 'joulediff[apple]'" in str(caught.value)


def test_the_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "Darwin", "arm64")
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", SimpleNamespace(AppleEnergyMonitor=ScriptedMonitor))
    assert open_apple().poll()[0].value == pytest.approx(1.0)


def test_the_library_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> ScriptedMonitor:
        raise RuntimeError("Failed to create IOReport subscription.")

    pretend(monkeypatch, "Darwin", "arm64")
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", SimpleNamespace(AppleEnergyMonitor=refuse))
    with pytest.raises(MeterUnavailable, match="subscription"):
        open_apple()
