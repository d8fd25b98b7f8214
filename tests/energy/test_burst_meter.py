"""The burst meter on a simulated GPU: energy above rest, for any rests, meters and gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import GPU, counter_domain
from joulediff.energy.load_energy import MIN_WINDOWS, WINDOW_S, BurstEnergy, BurstMeter
from joulediff.model.errors import JoulediffError, MeterFailed, NotCovered
from replay_fakes import ADD, FULL_MHZ, LIMIT_W, MM, REST_W, FakeLoad, ReplaySetup, Work

REST = {"gpu0": REST_W}
# A process that is certainly not there, and not one of ours.
NOBODY = 2**30


def measure(setup: ReplaySetup, load: FakeLoad, *, rest_s: float = 0.0, window_s: float = 0.5) -> BurstEnergy:
    return setup.burst_meter.measure(lambda: load.run(rest_s), REST, window_s=window_s)


def energy_of(found: BurstEnergy, load: FakeLoad) -> tuple[float, float]:
    per = found.domains["gpu0"]
    return per.energy.joules / load.calls, per.energy.half_j / load.calls


@settings(deadline=None, max_examples=30)
@given(
    power_w=st.floats(REST_W + 20, LIMIT_W),
    call_s=st.floats(2e-6, 3e-3),
    rest_share=st.floats(0.0, 4.0),
    gap_share=st.floats(0.0, 1.0),
)
def test_rest_is_taken_off_whatever_the_pace_and_the_gaps(
    power_w: float, call_s: float, rest_share: float, gap_share: float
) -> None:
    setup, work = ReplaySetup(), Work(power_w, call_s)
    load = setup.load(work, gap_s=gap_share * 1e-3)
    joules, half_j = energy_of(measure(setup, load, rest_s=rest_share * load.burst_s), load)
    # An interval of 95 % may miss by a little.
    assert abs(joules - work.energy_j()) <= 1.2 * half_j


def test_a_resting_card_is_its_power_times_time() -> None:
    setup = ReplaySetup()
    rest = FakeLoad(setup.card, None)
    found = setup.burst_meter.measure(lambda: rest.run(1e-3), {"gpu0": 0.0}, window_s=0.4).domains["gpu0"]
    assert found.power_w == pytest.approx(REST_W)
    assert found.energy.half_j < 0.02 * found.energy.joules


def test_work_that_draws_nothing_above_rest_has_an_interval_around_nothing() -> None:
    setup, work = ReplaySetup(), Work(REST_W, 1e-4)
    load = setup.load(work)
    joules, half_j = energy_of(measure(setup, load), load)
    assert joules == pytest.approx(0.0, abs=1e-9)
    assert half_j >= 0.0


def test_what_draws_little_above_rest_is_known_no_better_than_the_whole_power() -> None:
    setup, work = ReplaySetup(), Work(REST_W + 10.0, 1e-4)
    load = setup.load(work)
    joules, half_j = energy_of(measure(setup, load), load)
    assert abs(joules - work.energy_j()) <= half_j
    assert half_j >= 1.96 * GPU.repeat_share * work.power_w * work.call_s


def test_readings_that_come_late_are_waited_for() -> None:
    setup = ReplaySetup(lag_s=0.4)
    load = setup.load(ADD)
    joules, half_j = energy_of(measure(setup, load, window_s=0.2), load)
    assert abs(joules - ADD.energy_j()) <= half_j


class Stalled(BurstMeter):
    """A burst meter on a machine that stops now and then: the first windows are lost."""

    lost = 1

    def _measure(self, repeater: Any, sampler: Any, domains: Any, window_s: float) -> BurstEnergy:
        self.lost -= 1
        if self.lost >= 0:
            raise NotCovered("gpu0: no whole step was covered by the meter")
        return super()._measure(repeater, sampler, domains, window_s)


def test_a_load_that_the_meter_did_not_cover_is_measured_again_for_longer() -> None:
    setup = ReplaySetup()
    once, load = measure(setup, setup.load(ADD)), setup.load(ADD)
    setup.burst_meter = Stalled([setup.meter], clock=setup.clock)
    again = measure(setup, load)
    joules, half_j = energy_of(again, load)
    assert abs(joules - ADD.energy_j()) <= half_j
    assert again.bursts > 2 * once.bursts


def test_windows_that_are_never_covered_are_an_error() -> None:
    setup = ReplaySetup()
    setup.burst_meter = Stalled([setup.meter], clock=setup.clock)
    setup.burst_meter.lost = 2
    with pytest.raises(NotCovered):
        measure(setup, setup.load(ADD))


def test_a_call_that_is_longer_than_the_window() -> None:
    setup, work = ReplaySetup(), Work(400.0, 0.7)
    load = setup.load(work)
    found = measure(setup, load, window_s=0.15)
    joules, half_j = energy_of(found, load)
    assert found.bursts >= 2
    assert abs(joules - work.energy_j()) <= half_j


@pytest.mark.parametrize("rest_share", [0.0, 1.0])
def test_a_counter_that_ticks_every_100_ms(rest_share: float) -> None:
    setup = ReplaySetup(counter_domain(0.1), poll_s=0.01)
    load = setup.load(ADD)
    joules, half_j = energy_of(measure(setup, load, rest_s=rest_share * load.burst_s, window_s=0.2), load)
    assert abs(joules - ADD.energy_j()) <= half_j


def test_clock_bursts_and_cpu_time_of_a_measurement() -> None:
    setup = ReplaySetup()
    burst_meter = BurstMeter([setup.meter], clock=setup.clock, cpu_s=lambda: 0.25 * setup.clock.now())
    load = setup.load(ADD)
    found = burst_meter.measure(lambda: load.run(0.0), REST, window_s=0.5)
    assert found.clocks_mhz == {"gpu0": FULL_MHZ}
    assert found.bursts * load.burst_s == pytest.approx(0.5, rel=0.05)
    assert found.cpu_s == pytest.approx(0.25 * load.burst_s, rel=0.01)
    assert found.warnings == ()


def test_a_window_is_at_least_a_few_parts() -> None:
    setup = ReplaySetup()
    load = setup.load(ADD)
    found = measure(setup, load, window_s=0.01)
    assert found.bursts * load.burst_s >= MIN_WINDOWS * 3 * GPU.period_s
    assert found.bursts * load.burst_s < MIN_WINDOWS * WINDOW_S


def test_heavy_work_without_rests_loses_its_clock() -> None:
    setup = ReplaySetup()
    load = setup.load(MM)
    found = measure(setup, load)
    assert found.domains["gpu0"].power_w + REST_W == pytest.approx(LIMIT_W, rel=0.01)
    assert found.clocks_mhz["gpu0"] < 0.85 * FULL_MHZ
    assert energy_of(found, load)[0] == pytest.approx(MM.energy_j(found.clocks_mhz["gpu0"]), rel=0.01)


def test_another_process_on_the_gpu_is_a_warning() -> None:
    setup = ReplaySetup()
    setup.card.others = (NOBODY,)
    (doubt,) = measure(setup, setup.load(ADD)).warnings
    assert str(NOBODY) in doubt


def test_a_domain_that_no_meter_sees() -> None:
    setup = ReplaySetup()
    load = setup.load(ADD)
    with pytest.raises(JoulediffError, match="no meter sees gpu7"):
        setup.burst_meter.measure(lambda: load.run(0.0), {"gpu7": 0.0}, window_s=0.2)
    assert load.rests_s == []


def test_a_meter_that_fails_is_an_error() -> None:
    setup = ReplaySetup(dies_at_s=0.0)
    with pytest.raises(MeterFailed, match="unplugged"):
        measure(setup, setup.load(ADD))


@pytest.mark.parametrize("look", ["measure", "probe"])
def test_an_exception_of_the_device_is_one_line(look: str) -> None:
    setup = ReplaySetup()
    load = setup.load(ADD, fails=RuntimeError("CUDA error: an illegal memory access\nCompile with TORCH_USE_CUDA_DSA"))
    with pytest.raises(JoulediffError, match=r"illegal memory access$"):
        if look == "measure":
            measure(setup, load)
        else:
            setup.burst_meter.probe(lambda: load.run(0.0), "gpu0")


@pytest.mark.parametrize("look", ["measure", "probe"])
def test_an_interrupt_passes_and_sampling_ends(look: str) -> None:
    setup = ReplaySetup()
    load = setup.load(ADD, fails=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        if look == "measure":
            measure(setup, load)
        else:
            setup.burst_meter.probe(lambda: load.run(0.0), "gpu0")
    assert setup.clock._beats == {}


@pytest.mark.parametrize("work", [ADD, MM])
def test_a_probe_finds_power_and_clock(work: Work) -> None:
    setup = ReplaySetup()
    load = setup.load(work)
    power_w, clock_mhz = setup.burst_meter.probe(lambda: load.run(load.burst_s), "gpu0")
    assert power_w == pytest.approx((work.power_w + REST_W) / 2, rel=0.06)
    assert clock_mhz == FULL_MHZ


@pytest.mark.parametrize("domain", [counter_domain(0.1), counter_domain(0.001), replace(GPU, period_s=0.1)])
def test_a_probe_with_a_slow_meter_finds_only_the_clock(domain: object) -> None:
    setup = ReplaySetup(domain)  # type: ignore[arg-type]
    load = setup.load(ADD)
    assert setup.burst_meter.probe(lambda: load.run(0.0), "gpu0") == (None, FULL_MHZ)


def test_a_probe_of_what_no_meter_sees() -> None:
    setup = ReplaySetup(tells_clock=False)
    load = setup.load(ADD)
    assert setup.burst_meter.probe(lambda: load.run(0.0), "gpu7") == (None, None)


def test_two_meters_of_which_one_is_asked() -> None:
    setup = ReplaySetup()
    other = ReplaySetup(replace(GPU, name="gpu1"))
    other.card.others = (NOBODY,)
    burst_meter = BurstMeter([other.meter, setup.meter], clock=setup.clock)
    load = setup.load(ADD)
    found = burst_meter.measure(lambda: load.run(0.0), REST, window_s=0.3)
    assert list(found.domains) == ["gpu0"]
    assert found.warnings == ()
