"""The idle power comes from the same window that was judged, and the wait ends."""

import pytest

from fakes import GPU, DeviceMeter, FakeDevice
from joulediff.measuring.host_use import CpuUse
from joulediff.measuring.idle import wait_until_quiet
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.measuring.sampler import Sampler
from joulediff.model.measurement import DeviceState
from joulediff.model.progress import ProgressListener


@pytest.fixture(autouse=True)
def _still_cpu(monkeypatch):
    monkeypatch.setattr("joulediff.measuring.idle.read_cpu_use", lambda: CpuUse(0.0, 0.0, 0.0))


class Settling(FakeDevice):
    """A card that cools down from work: its power falls to 120 W by `quiet_at_s`."""

    def __init__(self, clock, quiet_at_s):
        super().__init__(clock, idle_w=120.0)
        self.quiet_at_s = quiet_at_s

    def power_at(self, at_s):
        return 120.0 + max(0.0, 300.0 * (1 - at_s / self.quiet_at_s))


class Restless(FakeDevice):
    """A card that another program uses now and then."""

    def power_at(self, at_s):
        return 300.0 if at_s % 0.7 < 0.3 else 120.0


def quiet_after(device, clock, wait_s, **options):
    with Sampler([DeviceMeter(device, [GPU], **options)], clock=clock) as sampler:
        return wait_until_quiet(sampler, clock=clock, wait_s=wait_s, listener=options.get("listener"))


def test_the_baseline_is_that_of_the_quiet_window():
    clock = FakeClock()
    verdict = quiet_after(Settling(clock, quiet_at_s=3.5), clock, wait_s=30)
    assert verdict.quiet
    assert verdict.idle["gpu0"].power_w == pytest.approx(120, rel=1e-3)
    assert 4 < verdict.waited_s < 7


def test_a_restless_machine_gets_a_verdict_in_time():
    clock = FakeClock()
    verdict = quiet_after(Restless(clock), clock, wait_s=5)
    assert not verdict.quiet
    assert clock.now() < 7.5
    assert any("the idle power of gpu0 varies by" in text for text in verdict.advice)
    assert 120 < verdict.idle["gpu0"].power_w < 300


def test_waiting_is_shown():
    said = []

    class Listener(ProgressListener):
        def stage(self, text, share=None):
            said.append((text, share))

    clock = FakeClock()
    with Sampler([DeviceMeter(Restless(clock), [GPU])], clock=clock) as sampler:
        wait_until_quiet(sampler, clock=clock, wait_s=5, listener=Listener())
    assert said
    assert all("waiting for a quiet machine" in text for text, _ in said)
    shares = [share for _, share in said]
    assert shares == sorted(shares)


def test_a_dead_meter_does_not_hold_up_the_verdict():
    clock = FakeClock()
    verdict = quiet_after(FakeDevice(clock), clock, wait_s=60, dies_at_s=0.2)
    assert not verdict.quiet
    assert clock.now() < 5
    assert any("unplugged" in text for text in verdict.advice)


def test_another_process_on_the_gpu_is_named():
    clock = FakeClock()
    busy = DeviceState("gpu0", other_pids=(999999,))
    verdict = quiet_after(FakeDevice(clock), clock, wait_s=0, states=[busy])
    assert not verdict.quiet
    assert "999999" in verdict.advice[0]
