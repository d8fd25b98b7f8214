"""Calls on a scripted device are given its exact energy, however often they are joined, and the books close."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from call_builders import FakeProgram
from fakes import GPU, DeviceMeter, FakeDevice
from joulediff.instrument.build import _Sums, build
from joulediff.instrument.tally import CallTally, WorkSampler
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.measurement import IdlePower

IDLE_W = 100.0
COUNTER = replace(GPU, kind="counter", period_s=0.1)
CPU = replace(GPU, name="cpu", kind="counter", period_s=0.001, source="metered")


class LossyMeter(DeviceMeter):
    """Loses the samples of a time, as a driver does whose samples nobody fetches."""

    lost_s = (0.0, 0.0)

    def _sample(self, domain):
        return [each for each in super()._sample(domain) if not self.lost_s[0] < each.time_s < self.lost_s[1]]


class Scene:
    """A program on a fake device, whose meter is read on the fake clock."""

    def __init__(self, domain=GPU, *, idle=True, cores=1.0, second=()):
        self.clock = FakeClock(10.0)
        self.device = FakeDevice(self.clock, idle_w=IDLE_W)
        self.domain = domain
        self.cpu = None
        self.program = FakeProgram(clock=self.clock, cores=cores, starts=False)
        self.meter = LossyMeter(self.device, [domain, *second])
        self.sampler = WorkSampler(
            [self.meter],
            clock=self.clock,
            own_s=lambda: self.program.cpu_s,
            all_s=lambda: self.program.cpu_s,
        )
        self.sampler.__enter__()
        self.clock.advance(1.0)
        rest = IdlePower(IDLE_W, IDLE_W, IDLE_W, 0.0, 1.0)
        self.sampler.edge()
        self.start_s = self.program.recorder.start()
        self.program.start_s = self.start_s
        self.tally = CallTally(
            self.sampler, self.program.recorder, idle={domain.name: rest} if idle else {}, start_s=self.start_s
        )

    def work(self, power_w, seconds):
        self.device.set(power_w)
        self.program.run(seconds)
        self.device.set(IDLE_W)

    def call(self, name, line, power_w, seconds):
        self.program.call(name, line, lambda: self.work(power_w, seconds))

    def finish(self, *, net=True):
        self.program.recorder.stop()
        end_s = self.clock.now()
        self.sampler.edge()
        self.clock.advance(0.3)
        self.sampler.edge()
        self.tally.end_s = end_s
        self.tally.join()
        return build(self.program.recorder, self.tally, net=net, seconds=end_s - self.start_s)


@pytest.mark.parametrize("domain", [GPU, COUNTER, CPU], ids=["samples", "counter", "cpu"])
def test_long_calls_have_the_energy_of_the_device_and_the_books_close(domain):
    scene = Scene(domain)
    scene.work(150.0, 2.0)
    scene.call("torch.matmul", 3, 600.0, 4.0)
    scene.work(120.0, 1.0)
    scene.call("torch.relu", 5, 300.0, 3.0)
    built = scene.finish()
    apis = {each.api: each for each in built.apis}
    tolerance = 0.03
    assert apis["torch.matmul"].energy.joules == pytest.approx(2400, rel=tolerance)
    assert apis["torch.matmul"].net_energy.joules == pytest.approx(2000, rel=tolerance)
    assert apis["torch.relu"].self_energy.joules == pytest.approx(900, rel=tolerance)
    assert apis["torch.matmul"].energy.low <= 2400 <= apis["torch.matmul"].energy.high
    (account,) = built.ledger.values()
    assert account.closure == pytest.approx(1.0, abs=1e-3)
    assert account.idle.joules == pytest.approx(1000, rel=0.01)
    assert account.metered.joules == pytest.approx(300 + 2400 + 120 + 900, rel=0.01)
    assert not any(each.too_short for each in built.apis)


def test_short_calls_are_added_up_and_marked():
    scene = Scene(GPU)
    for _ in range(2000):
        scene.call("torch.relu", 3, 400.0, 0.002)
        scene.work(400.0, 0.001)
    built = scene.finish()
    (relu,) = built.apis
    assert relu.calls == 2000
    assert relu.too_short
    assert relu.energy.joules == pytest.approx(1600, rel=0.05)
    assert relu.energy.low < 1600 < relu.energy.high


def test_joining_often_changes_nothing():
    whole, often = Scene(COUNTER), Scene(COUNTER)
    for scene in (whole, often):
        for at in range(40):
            scene.call("torch.matmul", 3, 500.0, 0.35)
            scene.work(200.0, 0.05)
            if scene is often and at % 3 == 0:
                scene.tally.join()
    a, b = whole.finish(), often.finish()
    assert b.apis[0].energy.joules == pytest.approx(a.apis[0].energy.joules, rel=1e-6)
    assert b.ledger["gpu0"].between.joules == pytest.approx(a.ledger["gpu0"].between.joules, rel=1e-6)
    assert b.ledger["gpu0"].metered.joules == pytest.approx(a.ledger["gpu0"].metered.joules, rel=1e-6)
    assert b.ledger["gpu0"].closure == pytest.approx(1.0, abs=1e-6)


def test_joined_segments_and_readings_are_forgotten():
    scene = Scene(GPU)
    for _ in range(300):
        scene.call("torch.relu", 3, 400.0, 0.05)
        scene.program.run(0.01)
        scene.tally.join()
    assert len(scene.sampler.readings(GPU)) < 400  # of 900
    assert len(scene.sampler.ticks) < 400


def test_one_long_call_can_be_joined_while_it_runs():
    scene = Scene(GPU)

    def inside():
        for _ in range(10):
            scene.work(500.0, 2.0)
            scene.tally.join()

    scene.program.call("keras.Model.fit", 3, inside)
    built = scene.finish()
    assert built.apis[0].energy.joules == pytest.approx(10_000, rel=0.02)
    assert built.ledger["gpu0"].closure == pytest.approx(1.0, abs=1e-3)


def test_without_a_quiet_window_net_energies_and_idle_are_unknown():
    scene = Scene(GPU, idle=False)
    scene.call("torch.matmul", 3, 600.0, 4.0)
    built = scene.finish(net=False)
    assert built.apis[0].net_energy is None
    assert built.net_energy is None
    assert built.ledger["gpu0"].idle is None
    assert built.ledger["gpu0"].closure == pytest.approx(1.0, abs=1e-3)


def test_a_recursive_call_counts_once_in_the_total():
    scene = Scene(GPU)

    def outer():
        scene.work(500.0, 1.0)
        scene.call("torch.nn.Module.__call__", 3, 500.0, 1.0)

    scene.program.call("torch.nn.Module.__call__", 3, outer)
    built = scene.finish()
    (module,) = built.apis
    assert module.calls == 2
    assert module.energy.joules == pytest.approx(1000, rel=0.05)
    assert module.self_energy.joules == pytest.approx(1000, rel=0.05)
    assert module.sites[0].energy.joules == pytest.approx(1000, rel=0.05)


def test_the_tree_has_the_calls_below_each_other():
    scene = Scene(GPU)
    scene.program.call("torch.nn.Module.__call__", 3, lambda: scene.call("torch.relu", 9, 500.0, 1.0))
    built = scene.finish()
    names = [built.apis[node.api].api for node in built.tree]
    child = built.tree[names.index("torch.relu")]
    assert names[child.parent] == "torch.nn.Module.__call__"
    assert sum(node.self_energy.joules for node in built.tree) == pytest.approx(
        sum(each.self_energy.joules for each in built.apis)
    )


def test_gaps_carry_the_code_between_calls():
    scene = Scene(GPU)
    scene.call("torch.relu", 3, 500.0, 1.0)
    scene.work(300.0, 2.0)
    scene.call("torch.relu", 8, 500.0, 1.0)
    built = scene.finish()
    gap = built.gaps[0]
    assert (gap.after_line, gap.before_line, gap.count) == (3, 8, 1)
    assert gap.energy.joules == pytest.approx(600, rel=0.05)
    assert gap.net_energy.joules == pytest.approx(400, rel=0.05)


def test_a_meter_that_dies_is_reported_and_not_zero():
    scene = Scene(GPU)
    scene.meter._dies_at_s = scene.clock.now() + 1.0
    scene.call("torch.matmul", 3, 600.0, 8.0)
    built = scene.finish()
    assert "gpu0" not in built.domains or built.domains["gpu0"].energy.high > 4800


def test_a_counter_closes_the_gap_that_lost_samples_leave():
    scene = Scene(GPU, second=[COUNTER])
    scene.work(120.0, 3.0)
    begin_s = scene.clock.now()
    scene.meter.lost_s = (begin_s + 0.5, begin_s + 5.5)
    scene.call("torch.compile", 3, 300.0, 6.0)
    scene.work(120.0, 3.0)
    scene.call("torch.relu", 5, 600.0, 3.0)
    built = scene.finish()
    (found,) = [each for each in built.apis if each.api == "torch.compile"]
    assert found.energy.joules == pytest.approx(1800, rel=0.03)
    assert found.energy.low <= 1800 <= found.energy.high
    assert found.energy.half_width_share < 0.1
    assert built.ledger["gpu0"].closure == pytest.approx(1.0, abs=1e-3)


def test_without_a_counter_a_gap_is_wide():
    scene = Scene(GPU)
    scene.work(120.0, 3.0)
    begin_s = scene.clock.now()
    scene.meter.lost_s = (begin_s + 0.5, begin_s + 5.5)
    scene.call("torch.compile", 3, 100.0, 6.0)
    scene.call("torch.relu", 5, 600.0, 3.0)
    built = scene.finish()
    (found,) = [each for each in built.apis if each.api == "torch.compile"]
    assert found.energy.half_width_share > 0.5
    assert found.energy.low <= 600 <= found.energy.high


def test_segments_are_forgotten_after_a_meter_has_died():
    scene = Scene(GPU)
    scene.meter._dies_at_s = scene.clock.now() + 1.0
    for _ in range(300):
        scene.call("torch.relu", 3, 400.0, 0.05)
        scene.tally.join()
    assert len(scene.tally._segments) < 100
    built = scene.finish()
    domain = built.domains["gpu0"]
    assert domain.energy.joules == pytest.approx(300 * 0.05 * 400, rel=0.05)
    assert domain.energy.half_width_share > 0.5
    assert built.ledger["gpu0"].closure == pytest.approx(1.0, abs=1e-3)


def test_segments_of_other_threads_do_not_wait_long_for_the_end_of_a_gap(monkeypatch):
    monkeypatch.setattr("joulediff.instrument.tally.MOST_SEGMENTS", 10)
    scene = Scene(GPU)
    worker = ThreadOfProgram(scene.program)
    for _ in range(200):
        worker.call("torch.relu", 3, lambda: scene.work(400.0, 0.05))
        scene.tally.join()
    assert len(scene.tally._segments) < 30
    assert scene.finish().ledger["gpu0"].closure == pytest.approx(1.0, abs=1e-3)


def test_nodes_that_are_added_while_a_record_is_made_are_left_to_the_next(monkeypatch):
    scene = Scene(GPU)
    scene.call("torch.relu", 3, 400.0, 1.0)
    scene.tally.join()
    whole = _Sums.whole

    def whole_with_call(self):
        scene.call("torch.matmul", 7, 400.0, 0.5)
        return whole(self)

    with monkeypatch.context() as patched:
        patched.setattr(_Sums, "whole", whole_with_call)
        built = build(scene.program.recorder, scene.tally, net=True, seconds=1.0)
    assert [each.api for each in built.apis] == ["torch.relu"]
    assert {each.api for each in scene.finish().apis} == {"torch.relu", "torch.matmul"}


@pytest.mark.parametrize("domain", [GPU, COUNTER, CPU], ids=["samples", "counter", "cpu"])
def test_a_program_without_any_time_has_no_energy(domain):
    built = Scene(domain).finish()
    assert built.apis == ()
    assert all(not each.energy.joules for each in built.domains.values() if each.energy is not None)


class ThreadOfProgram:
    """Another thread of a program, whose calls the test makes from its own."""

    def __init__(self, program):
        self._program = program
        self._local = threading.local()

    def call(self, name, line, inside):
        recorder = self._program.recorder
        main, recorder._local = recorder._local, self._local
        try:
            self._program.call(name, line, inside)
        finally:
            recorder._local = main
