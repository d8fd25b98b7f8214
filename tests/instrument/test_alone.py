"""Calls that are measured alone are chosen one at a time, and a wait that is stopped leaves nothing behind."""

from __future__ import annotations

import pytest

from fakes import GPU, DeviceMeter, FakeDevice
from joulediff.instrument.alone import Isolation
from joulediff.instrument.recorder import Node
from joulediff.instrument.tally import WorkSampler
from joulediff.measuring.meters.scripted import FakeClock


def isolation(calls: int = 1) -> tuple[Isolation, WorkSampler, FakeClock, FakeDevice]:
    clock = FakeClock(10.0)
    device = FakeDevice(clock, idle_w=100.0)
    sampler = WorkSampler([DeviceMeter(device, [GPU])], clock=clock, own_s=lambda: 0.0, all_s=lambda: 0.0)
    sampler.__enter__()
    clock.advance(1.0)
    return Isolation(sampler, clock=clock, calls=calls, wait_s=5.0), sampler, clock, device


def test_a_call_inside_or_beside_one_that_is_measured_alone_is_not_chosen() -> None:
    alone, _, clock, device = isolation()
    outer, inner = Node(3, 0), Node(4, 3)
    assert alone.is_chosen(outer)
    alone.wait_before()
    assert not alone.is_chosen(inner)
    device.set(600.0)
    clock.advance(1.0)
    device.set(100.0)
    alone.wait_after(outer)
    (found,) = outer.alone_j
    assert found["gpu0"].joules == pytest.approx(500, rel=0.05)
    assert alone.is_chosen(inner)


def test_readings_are_kept_only_while_a_call_is_measured_alone() -> None:
    alone, sampler, clock, _ = isolation()
    assert alone.is_chosen(Node(3, 0))
    before_s = clock.now()
    alone.wait_before()
    assert sampler.kept_from_s == before_s
    alone.wait_after(Node(3, 0))
    assert sampler.kept_from_s == float("inf")


def test_a_wait_that_is_stopped_lets_the_next_call_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, sampler, _, _ = isolation()
    assert alone.is_chosen(Node(3, 0))

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("joulediff.instrument.alone.wait_for_rest", stop)
        with pytest.raises(KeyboardInterrupt):
            alone.wait_before()
    assert sampler.kept_from_s == float("inf")
    assert alone.is_chosen(Node(4, 0))
