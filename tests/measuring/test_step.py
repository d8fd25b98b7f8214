"""`measure` on a fake device that knows its exact energy: random loads, imperfect sensors, and failures."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes import GPU, DeviceMeter, FakeDevice, FakeWork, counter_domain
from joulediff.measuring.host_use import CpuUse
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.meter import RealClock
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.measuring.step import measure, measure_idle, resting
from joulediff.model.errors import JoulediffError, MeterFailed
from joulediff.model.measurement import DeviceState
from joulediff.model.progress import ProgressListener


@pytest.fixture(autouse=True)
def _still_cpu(monkeypatch):
    """Ignore other programs on the machine that runs the tests."""
    monkeypatch.setattr("joulediff.measuring.idle.read_cpu_use", lambda: CpuUse(0.0, 0.0, 0.0))


class Kept(ProgressListener):
    def __init__(self):
        self.measurement = None
        self.failure = None
        self.stages = []

    def stage(self, text, share=None):
        self.stages.append(text)

    def kept(self, measurement):
        self.measurement = measurement

    def failed(self, error, call):
        self.failure = (error, call)


def fake_step(step_s=0.003, busy_w=500.0, *, domains=(GPU,), idle_w=100.0, work=None, **sensor):
    clock = FakeClock()
    device = FakeDevice(clock, idle_w=idle_w)
    meter = DeviceMeter(device, domains, **sensor)
    return FakeWork(device, step_s, busy_w, **(work or {})), MeterSet([meter]), clock


def run(step, meters, clock, **options):
    return measure(step, meter=meters, clock=clock, **options)


def test_a_steady_step():
    found = run(*fake_step(step_s=0.003, busy_w=500.0))
    assert found.energy.joules == pytest.approx(1.5, rel=1e-3)
    assert found.energy.low < 1.5 < found.energy.high
    assert found.net_energy.joules == pytest.approx(1.2, rel=1e-3)
    assert found.step_s == pytest.approx(0.003)
    assert found.domains["gpu0"].power_w == pytest.approx(500, rel=1e-3)
    assert found.domains["gpu0"].idle.power_w == pytest.approx(100)
    assert found.energy.source == "metered"
    assert found.trustworthy
    assert found.warnings == ()


SENSORS = st.sampled_from(
    [
        GPU,
        counter_domain(0.001, unit_j=1e-5, repeat_share=0.002, window_s=0.1, settle_s=0.05),
        counter_domain(0.001, unit_j=1e-5, wrap_j=137.0, repeat_share=0.002, window_s=0.1, settle_s=0.05),
        counter_domain(0.1, repeat_share=0.002),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sensor=SENSORS,
    step_s=st.floats(math.log(2e-4), math.log(0.4)).map(math.exp),
    busy_w=st.floats(120, 900),
    swing=st.floats(0.0, 0.15),
    jitter=st.floats(0.0, 0.4),
    drop=st.floats(0.0, 0.08),
    seconds=st.floats(1.0, 4.0),
)
@example(seed=0, sensor=GPU, step_s=0.4, busy_w=300.0, swing=0.0, jitter=0.0, drop=0.0, seconds=1.0)
def test_random_work_on_random_sensors_is_held_by_the_interval(
    seed, sensor, step_s, busy_w, swing, jitter, drop, seconds
):
    rng = np.random.default_rng(seed)
    watts = busy_w * (1 + swing * rng.uniform(-1, 1, 4096))
    poll_s = 0.01 if sensor.period_s == 0.1 else 0.05
    step, meters, clock = fake_step(
        step_s, lambda call: watts[call % 4096], domains=[sensor], seed=seed, jitter=jitter, drop=drop, poll_s=poll_s
    )
    found = run(step, meters, clock, seconds=seconds)
    true_j = float(watts.mean()) * step_s
    # 95 % intervals: a property test looks at twice their width, and at what few steps can know of `watts`.
    few_j = 3 * float(watts.std()) * step_s / math.sqrt(found.steps)
    half_j = 2 * (found.energy.high - found.energy.joules) + few_j
    assert abs(found.energy.joules - true_j) <= half_j
    assert found.step_s == pytest.approx(step_s, rel=1e-6)


def test_steps_shorter_than_a_tick_and_longer_than_a_window_agree():
    short = run(*fake_step(step_s=0.0004, domains=[counter_domain(0.1)], poll_s=0.005))
    long = run(*fake_step(step_s=0.9, domains=[counter_domain(0.1)], poll_s=0.005), seconds=5)
    assert short.energy.joules / 0.0004 == pytest.approx(500, rel=0.01)
    assert long.energy.joules / 0.9 == pytest.approx(500, rel=0.03)


def test_repeats_end_early_when_the_interval_is_narrow():
    step, meters, clock = fake_step()
    begin_s = clock.now()
    run(step, meters, clock, seconds=60)
    assert clock.now() - begin_s < 10


@pytest.mark.parametrize(("throttle", "least_s"), [((), 0.0), (("power cap",), 2.0)])
def test_a_turn_ends_earlier_but_not_within_the_swings_of_a_governor(throttle, least_s):
    state = DeviceState("gpu0", clock_mhz=1500, power_limit_w=700, throttle=throttle)
    spent_s = []
    for is_turn in (False, True):
        step, meters, clock = fake_step(states=[state])
        idle = measure_idle(meters, wait_s=0, clock=clock)
        begin_s = clock.now()
        run(step, meters, clock, seconds=4, idle=idle, is_turn=is_turn)
        spent_s.append(clock.now() - begin_s)
    assert least_s < spent_s[1] <= spent_s[0] < 5


def test_a_long_step_that_ran_before_is_warmed_up_once():
    spent_s = []
    for is_warm in (False, True):
        step, meters, clock = fake_step(step_s=0.9)
        idle = measure_idle(meters, wait_s=0, clock=clock)
        begin_s = clock.now()
        run(step, meters, clock, seconds=0.5, idle=idle, is_warm=is_warm)
        spent_s.append(clock.now() - begin_s)
    assert spent_s[0] - spent_s[1] == pytest.approx(2 * 0.9, abs=0.02)


def test_the_time_given_is_kept():
    step, meters, clock = fake_step(busy_w=lambda call: 500 if (call // 200) % 2 else 250, step_s=0.002)
    begin_s = clock.now()
    found = run(step, meters, clock, seconds=3, precision=0.001)
    assert clock.now() - begin_s < 3 + 0.3 + 1.3  # half a window more, warm-up, settling and the idle window
    assert not found.trustworthy


def test_an_interval_that_stays_wide_is_said_with_its_reason():
    rng = np.random.default_rng(1)
    levels = rng.uniform(100, 900, 50)
    step, meters, clock = fake_step(busy_w=lambda call: levels[(call // 150) % 50], step_s=0.002)
    found = run(step, meters, clock, seconds=2)
    assert not found.trustworthy
    assert any("wider than 5%" in w for w in found.warnings)
    assert found.energy.low < 500 * 0.002 * 1.2


def test_a_meter_that_dies_keeps_what_it_said():
    found = run(*fake_step(dies_at_s=3.2), seconds=4)
    assert found.energy.joules == pytest.approx(1.5, rel=0.01)
    assert not found.trustworthy
    assert any("unplugged" in w for w in found.warnings)
    assert any("no readings of the last" in w for w in found.warnings)


def test_a_meter_that_dies_before_the_first_window_is_an_error_and_not_zero():
    with pytest.raises(MeterFailed, match="unplugged"):
        run(*fake_step(dies_at_s=1.05), seconds=2)


def test_a_counter_that_goes_backwards_keeps_what_it_said_before():
    step, meters, clock = fake_step(domains=[counter_domain(0.001, unit_j=1e-5, window_s=0.1, settle_s=0.05)])
    meters.meters[0].resets_at_s = 2.5
    found = run(step, meters, clock, seconds=4, precision=1e-4)
    assert found.energy.joules == pytest.approx(1.5, rel=0.01)
    assert any("went backwards" in w for w in found.warnings)
    assert not found.trustworthy


def test_one_dead_meter_does_not_take_the_other_along():
    clock = FakeClock()
    device = FakeDevice(clock)
    good = DeviceMeter(device, [GPU])
    bad = DeviceMeter(device, [replace(GPU, name="gpu1")], dies_at_s=0.5)
    bad.name = "bad"
    found = run(FakeWork(device, 0.003), MeterSet([good, bad]), clock)
    assert set(found.domains) == {"gpu0"}
    assert not found.trustworthy


def test_a_step_that_raises_passes_through_and_keeps_what_was_measured():
    listener = Kept()
    step, meters, clock = fake_step(step_s=0.2, work={"fails_at": 10})
    with pytest.raises(ValueError, match="no more") as caught:
        run(step, meters, clock, listener=listener)
    assert caught.value is step.error
    assert listener.failure == (step.error, 10)
    assert listener.measurement.energy.joules == pytest.approx(100, rel=0.1)
    assert not listener.measurement.trustworthy


def test_a_step_that_raises_at_once_has_nothing_to_keep():
    listener = Kept()
    step, meters, clock = fake_step(work={"fails_at": 1})
    with pytest.raises(ValueError, match="no more"):
        run(step, meters, clock, listener=listener)
    assert listener.measurement is None
    assert listener.failure[1] == 1


def test_ctrl_c_passes_through_and_keeps_what_was_measured():
    listener = Kept()
    step, meters, clock = fake_step(work={"fails_at": 700, "error": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run(step, meters, clock, listener=listener)
    assert listener.measurement.energy.joules == pytest.approx(1.5, rel=0.05)


def test_idle_power_can_be_shared_between_measurements():
    step, meters, clock = fake_step()
    quiet = measure_idle(meters, clock=clock)
    begin_s = clock.now()
    found = run(step, meters, clock, seconds=1, idle=quiet)
    assert clock.now() - begin_s < 1.2
    assert found.net_energy.joules == pytest.approx(1.2, rel=0.01)


def test_the_resting_power_of_a_measurement_serves_the_next_one():
    step, meters, clock = fake_step()
    first = run(step, meters, clock, seconds=1)
    step.device.idle_w = 130.0  # the heat that another program left
    step.device.set(130.0)
    listener, begin_s = Kept(), clock.now()
    again = run(step, meters, clock, seconds=1, idle=resting(first), listener=listener)
    assert "looking for a quiet second" not in listener.stages
    assert clock.now() - begin_s < 1.2
    assert again.domains["gpu0"].idle == first.domains["gpu0"].idle
    assert again.net_energy.joules == pytest.approx(1.2, rel=0.01)
    assert again.trustworthy


def test_a_resting_power_that_is_not_known_stays_unknown():
    step, meters, clock = fake_step(domains=[GPU, counter_domain(0.001, unit_j=1e-5, name="cpu")])
    first = run(step, meters, clock, seconds=1)
    cpu = replace(first.domains["cpu"], idle=None)
    quiet = resting(replace(first, domains={**first.domains, "cpu": cpu}))
    assert (quiet.quiet, quiet.conditions, quiet.idle) == (True, (), {"gpu0": first.domains["gpu0"].idle})
    again = run(step, meters, clock, seconds=1, idle=quiet)
    assert again.domains["cpu"].idle is None and again.domains["cpu"].net_energy is None
    assert again.domains["gpu0"].net_energy is not None


def test_estimates_are_never_added_to_measurements():
    cpu = counter_domain(0.001, unit_j=1e-5, name="cpu", source="estimated", note="assumed")
    found = run(*fake_step(domains=[GPU, cpu]))
    assert found.energy.joules == pytest.approx(1.5, rel=0.01)
    assert not found.domains["cpu"].counted
    assert found.domains["cpu"].energy.source == "estimated"
    assert any("cpu is estimated, not measured" in w for w in found.warnings)


def test_an_estimate_alone_is_the_total_with_a_warning():
    cpu = counter_domain(0.001, unit_j=1e-5, name="cpu", source="estimated", note="assumed")
    found = run(*fake_step(domains=[cpu]))
    assert found.energy.source == "estimated"


def test_a_domain_that_covers_others_is_not_added():
    wall = replace(GPU, name="wall", whole=True)
    cpu = replace(GPU, name="cpu")
    found = run(*fake_step(domains=[GPU, cpu, wall]))
    assert found.energy.joules == pytest.approx(3.0, rel=0.01)
    only = run(*fake_step(domains=[wall]))
    assert only.energy.joules == pytest.approx(1.5, rel=0.01)


def test_sensors_that_disagree_are_a_warning():
    both = [GPU, counter_domain(0.1)]
    agree = run(*fake_step(domains=both))
    assert agree.trustworthy
    differ = run(*fake_step(domains=both, gain={"counter": 1.3}))
    assert not differ.trustworthy
    assert any("its counter says" in w for w in differ.warnings)


def test_the_power_limit_is_a_remark_and_thermal_throttling_a_doubt():
    capped = DeviceState("gpu0", clock_mhz=1500, power_limit_w=700, throttle=("power cap",))
    step, meters, clock = fake_step(states=[capped])
    found = run(step, meters, clock, idle=measure_idle(meters, wait_s=0, clock=clock))
    assert any("power limit" in w for w in found.warnings)
    hot = DeviceState("gpu0", throttle=("thermal slowdown",))
    step, meters, clock = fake_step(states=[hot])
    assert not run(step, meters, clock, wait_s=0).trustworthy


def test_work_whose_power_does_not_differ_from_idle_is_a_warning():
    found = run(*fake_step(busy_w=100.0, idle_w=100.0))
    assert found.net_energy.low <= 0 <= found.net_energy.high
    assert any("does not differ from idle" in w for w in found.warnings)


def test_a_counter_that_stands_still_is_below_its_resolution_and_not_zero():
    ane = counter_domain(0.01, unit_j=1e-3, name="ane", window_s=0.1)
    clock = FakeClock()
    device, dark = FakeDevice(clock), FakeDevice(clock, idle_w=0.0)
    lights_off = DeviceMeter(dark, [ane])
    lights_off.name = "dark"
    found = run(FakeWork(device, 0.003), MeterSet([DeviceMeter(device, [GPU]), lights_off]), clock)
    assert found.trustworthy
    assert 0 < found.domains["ane"].energy.high < 1e-3


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_no_time_is_refused(seconds):
    step, meters, clock = fake_step()
    with pytest.raises(JoulediffError, match="seconds"):
        run(step, meters, clock, seconds=seconds)


class RestlessClock(FakeClock):
    """A clock that moves a little whenever it is read, as real ones do."""

    def now(self):
        self.advance(1e-6)
        return super().now()


@pytest.mark.parametrize("step_s", [0.3, 1.5, 3.0])
def test_steps_longer_than_a_window_are_measured_whole(step_s):
    clock = RestlessClock()
    device = FakeDevice(clock)
    found = run(FakeWork(device, step_s), MeterSet([DeviceMeter(device, [GPU])]), clock)
    assert found.energy.joules == pytest.approx(500 * step_s, rel=0.01)
    assert found.steps >= 1
    assert found.step_s == pytest.approx(step_s, rel=0.001)


def test_net_energy_is_of_the_same_time_as_the_energy():
    """The net energy of a meter that fails early uses the duration of the steps it covered."""
    step, meters, clock = fake_step(step_s=0.01, busy_w=100.0, idle_w=100.0, dies_at_s=3.0)
    slow = step.step_s

    def slowing():
        step.step_s = slow * (3 if clock.now() > 3.0 else 1)
        return step()

    found = measure(slowing, meter=meters, clock=clock, precision=1e-6)
    assert found.net_energy.joules == pytest.approx(0.0, abs=0.02)


def test_windows_that_are_too_short_for_a_sensor_are_not_trusted():
    found = run(*fake_step(), seconds=0.4)
    assert not found.trustworthy
    assert any("too short for gpu0: give --seconds 0.7" in w for w in found.warnings)


def test_gpus_that_rest_are_left_out_and_other_processes_on_them_ignored():
    clock = FakeClock()
    device, spare = FakeDevice(clock), FakeDevice(clock, idle_w=80.0)
    busy = DeviceMeter(device, [GPU])
    idle = DeviceMeter(spare, [replace(GPU, name="gpu1")], states=[DeviceState("gpu1", other_pids=(999999,))])
    idle.name = "spare"
    found = run(FakeWork(device, 0.003), MeterSet([busy, idle]), clock, wait_s=0)
    assert found.energy.joules == pytest.approx(1.5, rel=0.01)
    assert found.domains["gpu1"].rested
    assert not found.domains["gpu1"].counted
    assert found.trustworthy


def test_a_domain_outside_the_total_does_not_end_the_repeats():
    coarse = counter_domain(0.001, unit_j=1e-5, name="cpu", source="estimated", repeat_share=0.05, note="assumed")
    card = replace(GPU, repeat_share=0.006)
    alone = run(*fake_step(domains=[card]), seconds=6)
    beside = run(*fake_step(domains=[card, coarse]), seconds=6)
    assert alone.repeats == beside.repeats > 4


def test_a_vendor_library_that_raises_anything_is_a_dead_meter():
    step, meters, clock = fake_step()
    meter = meters.meters[0]
    poll, meter.poll = meter.poll, lambda: poll() if clock.now() < 3 else 1 / 0
    found = run(step, meters, clock, precision=1e-6)
    assert found.energy.joules == pytest.approx(1.5, rel=0.01)
    assert any("ZeroDivisionError" in w for w in found.warnings)


# Clocks, CPU time and where in the step the watts are.


def test_clocks_are_the_mean_over_the_edges_of_the_windows():
    looks = iter([1500.0, 1700.0] * 1000)
    step, meters, clock = fake_step(clocks=lambda: {"gpu0": next(looks)})
    found = run(step, meters, clock, seconds=3, precision=1e-6)
    assert found.clocks_mhz == pytest.approx({"gpu0": 1600}, abs=20)
    assert run(*fake_step()).clocks_mhz == {}


def test_clocks_are_read_while_the_device_is_at_work():
    """At rest the clock falls: reads before the first window and after the last would show it."""
    step, meters, clock = fake_step(clocks=lambda: {"gpu0": 1980.0 if step.calls > 20 else 300.0})
    assert run(step, meters, clock).clocks_mhz == {"gpu0": 1980.0}


def test_a_clock_that_cannot_be_read_is_left_out():
    step, meters, clock = fake_step(clocks=lambda: {}["broken"])
    found = run(step, meters, clock)
    assert found.clocks_mhz == {}
    assert found.trustworthy


def test_cpu_time_is_that_of_one_step():
    step, meters, clock = fake_step(step_s=0.003)
    found = run(step, meters, clock, read_cpu_s=lambda: 0.4 * clock.now())
    assert found.cpu_s == pytest.approx(0.0012, rel=0.01)
    assert run(*fake_step(step_s=0.3), read_cpu_s=lambda: 5.0).cpu_s == 0.0


def test_cpu_time_of_the_pauses_between_stretches_does_not_count():
    step, meters, clock = fake_step(step_s=0.01, busy_w=lambda call: 300 + call % 97)
    spent_s = 0.0

    def counting():
        nonlocal spent_s
        spent_s += 0.005
        return step()

    found = run(counting, meters, clock, seconds=8, precision=1e-6, read_cpu_s=lambda: spent_s)
    assert found.repeats > 8
    assert found.cpu_s == pytest.approx(0.005, rel=1e-6)


def test_cpu_time_without_a_counter_is_unknown():
    assert run(*fake_step()).cpu_s is None


def test_the_sampling_is_not_in_the_cpu_time_of_the_program():
    clock = RealClock()
    device = FakeDevice(clock)
    meter = DeviceMeter(device, [replace(GPU, settle_s=0.05, window_s=0.2)], poll_s=0.01)
    poll = meter.poll
    meter.poll = lambda: burn(0.02) or poll()
    found = measure(lambda: burn(0.002), meter=MeterSet([meter]), clock=clock, seconds=0.7, wait_s=0, precision=1e-6)
    # With the sampling it would be 6 ms. On a machine with other work a step of 2 ms took 2.4 ms.
    assert found.sampling_share > 0.5
    assert found.cpu_s == pytest.approx(0.002, rel=0.5)


def burn(cpu_s):
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass


def two_phases(device, first_s, second_s):
    def step():
        device.set(600.0)
        device.clock.advance(first_s)
        device.set(200.0)
        device.clock.advance(second_s)
        device.set(device.idle_w)

    return step


def test_long_steps_have_a_profile_that_conserves():
    clock = RestlessClock()
    device = FakeDevice(clock)
    step = two_phases(device, 0.307, 0.307)
    found = run(step, MeterSet([DeviceMeter(device, [GPU])]), clock, seconds=8, precision=1e-6)
    profile = found.profiles["gpu0"]
    assert len(profile) == 30
    assert np.mean(profile) * found.step_s == pytest.approx(found.domains["gpu0"].energy.joules, rel=1e-12)
    assert profile[2:13] == pytest.approx([600] * 11, rel=0.02)
    assert profile[17:28] == pytest.approx([200] * 11, rel=0.05)


def test_short_steps_and_counters_have_no_profile():
    assert run(*fake_step(step_s=0.19)).profiles == {}
    assert run(*fake_step(step_s=0.5, domains=[counter_domain(0.01)])).profiles == {}


def test_a_program_that_breaks_off_keeps_its_clocks_cpu_time_and_profile():
    listener = Kept()
    step, meters, clock = fake_step(step_s=0.25, work={"fails_at": 14}, clocks=lambda: {"gpu0": 1980.0})
    with pytest.raises(ValueError, match="no more"):
        run(step, meters, clock, listener=listener, read_cpu_s=lambda: 0.4 * clock.now())
    kept = listener.measurement
    assert kept.clocks_mhz == {"gpu0": 1980.0}
    assert kept.cpu_s == pytest.approx(0.1, rel=0.01)
    assert np.mean(kept.profiles["gpu0"]) * kept.step_s == pytest.approx(kept.energy.joules, rel=1e-12)


def test_a_program_that_breaks_off_before_a_window_has_no_cpu_time():
    listener = Kept()
    step, meters, clock = fake_step(step_s=0.25, work={"fails_at": 6})
    with pytest.raises(ValueError, match="no more"):
        run(step, meters, clock, listener=listener, read_cpu_s=clock.now)
    assert listener.measurement.cpu_s is None


def busy(cores, *, own=1.0):
    """Return readings of a machine on which other programs keep some cores busy, in fake time."""

    def read(clock):
        return CpuUse((cores + own) * clock.now(), own * clock.now(), 0.0)

    return read


def run_beside(cores, *, source="estimated", name="cpu"):
    domain = counter_domain(0.001, unit_j=1e-6, name=name, repeat_share=0.01, window_s=0.1, settle_s=0.05)
    step, meters, clock = fake_step(domains=(replace(domain, source=source),))
    return run(step, meters, clock, read_cpu_use=lambda: busy(cores)(clock), wait_s=0)


@pytest.mark.parametrize("source", ["estimated", "metered"])
def test_other_programs_at_work_are_noticed(source, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = run_beside(1.3, source=source)
    assert not found.trustworthy
    assert "other programs keep 1.3 cores busy: stop them, or measure when they have finished" in found.warnings
    assert "other programs on the CPU, at work" in [each.name for each in found.conditions if not each.ok]
    assert run_beside(0.1, source=source).trustworthy


def test_other_programs_leave_the_energy_of_a_gpu_as_it_is():
    assert run_beside(1.3, source="metered", name="gpu0").trustworthy
