"""The domains that measure a device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from energy_builders import STEP_S, metered
from joulediff.energy.load_energy import BurstMeter, LoadMeter, name_domain
from joulediff.measuring.meters.estimated import open_estimated
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.run import How, Inputs, Replay
from run_builders import domain_energy


@pytest.mark.parametrize(("device", "name"), [("cpu", "cpu"), ("cuda", "gpu0"), ("cuda:3", "gpu3"), ("xpu:1", "gpu1")])
def test_domains_of_devices(device: str, name: str) -> None:
    assert name_domain(device) == name


def test_which_domains_see_a_device() -> None:
    domains = {
        "gpu0": domain_energy(4.0, STEP_S),
        "cpu": domain_energy(1.0, STEP_S),
        "dram0": domain_energy(1.0, STEP_S, counted=False),
    }
    load_meter = LoadMeter(metered(domains), None, None, lambda _: None)  # type: ignore[arg-type]
    assert load_meter.domains("cpu") == ["cpu", "dram0"]
    assert load_meter.domains("cuda:0") == ["gpu0"]
    assert load_meter.domains("cuda:1") == []
    assert load_meter.is_counted("cpu") and not load_meter.is_counted("cuda:1")
    assert LoadMeter(None, None, None, lambda _: None).domains("cpu") == []  # type: ignore[arg-type]


class HostCalls:
    """Bursts of ten calls on a simulated host: each takes its own time, and the loop around it another."""

    how: How = "loop"
    inputs: Inputs = "real"
    copies, calls = 1, 10
    burst_s, call_s, aim_s = 1e-3, None, None

    def __init__(self, clock: FakeClock, call_s: float, beside_s: float, *, is_known: bool = True) -> None:
        self._advance = clock.advance
        self._call_s, self._beside_s = call_s, beside_s
        self.run_empty = self._empty if is_known else None

    def run(self, rest_s: float) -> None:
        self._advance(self.calls * (self._call_s + self._beside_s))

    def _empty(self) -> None:
        self._advance(self.calls * self._beside_s)

    def close(self) -> None:
        pass


def replayed_on_host(call_s: float, beside_s: float, *, is_known: bool = True) -> Replay:
    """Return the replay of a load on a host whose estimate is 10 W of busy core."""
    clock = FakeClock()
    meter = open_estimated(watts=10.0, clock=clock, cpu_s=clock.now)
    domains = {"cpu": replace(domain_energy(1.0, STEP_S, None), idle=None)}
    burst_meter = BurstMeter([meter], clock=clock, cpu_s=clock.now)
    load_meter = LoadMeter(metered(domains), burst_meter, clock, lambda _: None)
    (row,) = load_meter.measure_job(0, "cpu", HostCalls(clock, call_s, beside_s, is_known=is_known), 0.3)
    return row


def test_the_loop_around_calls_on_the_host_is_subtracted() -> None:
    row = replayed_on_host(3e-5, 1e-5)
    assert row.energy_j == pytest.approx(10.0 * 3e-5, rel=0.02)
    assert row.beside_j == pytest.approx(10.0 * 1e-5, rel=0.02)
    assert row.call_s == pytest.approx(3e-5, rel=0.02) and row.cpu_s == pytest.approx(3e-5, rel=0.05)
    whole = replayed_on_host(3e-5, 1e-5, is_known=False)
    assert whole.energy_j == pytest.approx(10.0 * 4e-5, rel=0.02) and whole.beside_j is None
    assert row.energy is not None and whole.energy is not None
    assert row.energy.width_j > whole.energy.width_j


def test_an_operator_that_costs_less_than_the_errors_costs_nothing_or_more() -> None:
    row = replayed_on_host(0.0, 1e-5)
    assert row.energy is not None
    assert 0.0 <= row.energy.low <= row.energy.joules < row.energy.high < 10.0 * 1e-5 * 0.1
    assert row.call_s is not None and row.call_s >= 0.0
