"""The measuring loop on a fake device: edges, stretches, and what is read at them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fakes import GPU, DeviceMeter, FakeDevice, FakeWork
from joulediff.measuring.host_use import PageFaults
from joulediff.measuring.loop import Next, WindowLoop, Windows, mean_clocks
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.measuring.repeater import Repeater, StepLog
from joulediff.measuring.sampler import Sampler
from joulediff.model.measurement import DeviceState

STEP_S = 0.01


def run_windows(
    after_window: Callable[[int], Next],
    *,
    settle_s: float = 0.2,
    window_s: float = 0.5,
    read_cpu_s: Callable[[FakeClock], float] | None = None,
    read_faults: Callable[[FakeClock], PageFaults | None] | None = None,
    work: dict[str, Any] | None = None,
) -> Windows:
    """Return the windows of a step of 10 ms; those so far if it fails."""
    clock = FakeClock()
    device = FakeDevice(clock)
    meter = DeviceMeter(device, [GPU], states=[DeviceState("gpu0")], clocks=lambda: {"gpu0": 1000.0 * clock.now()})
    repeater = Repeater(FakeWork(device, STEP_S, **(work or {})), clock=clock)
    with Sampler([meter], clock=clock) as sampler:
        repeater.warm_up()
        loop = WindowLoop(
            repeater,
            sampler,
            clock=clock,
            read_cpu_s=None if read_cpu_s is None else lambda: read_cpu_s(clock),
            read_faults=None if read_faults is None else lambda: read_faults(clock),
        )
        try:
            loop.run(settle_s=settle_s, window_s=window_s, after_window=after_window)
        except ValueError:
            assert work
    return loop.windows


def until(count: int) -> Callable[[int], Next]:
    return lambda done: "window" if done < count else "stop"


def test_windows_are_contiguous_and_hold_whole_work() -> None:
    found = run_windows(until(4))
    (edges_s,) = found.stretches
    lengths_s = [end_s - start_s for start_s, end_s in pairwise(edges_s)]
    assert lengths_s == pytest.approx([0.5] * 4, abs=STEP_S)
    assert found.log.steps_between(edges_s[0], edges_s[-1]) == pytest.approx(200, abs=2)


def test_the_work_settles_before_the_first_edge() -> None:
    found = run_windows(until(1), settle_s=0.2)
    assert found.stretches[0][0] >= found.log.time_s[0] + 0.2


def test_a_new_stretch_begins_after_settling_again() -> None:
    found = run_windows(lambda done: "stretch" if done == 2 else until(4)(done), settle_s=0.2, window_s=0.5)
    first, second = found.stretches
    assert (len(first), len(second)) == (3, 3)
    assert second[0] - first[-1] == pytest.approx(0.2, abs=STEP_S)


def test_settling_again_takes_at_most_half_a_window() -> None:
    found = run_windows(lambda done: "stretch" if done == 1 else until(2)(done), settle_s=2.0, window_s=0.5)
    first, second = found.stretches
    assert second[0] - first[-1] == pytest.approx(0.25, abs=STEP_S)


def test_the_devices_are_looked_at_before_and_after() -> None:
    found = run_windows(until(2))
    assert [state.domain for state in (*found.states_before, *found.states_after)] == ["gpu0", "gpu0"]


def test_clocks_are_read_at_every_edge() -> None:
    found = run_windows(until(3))
    assert len(found.clocks_mhz) == 4
    (edges_s,) = found.stretches
    assert found.mean_clocks_mhz["gpu0"] == pytest.approx(1000.0 * sum(edges_s) / 4)


def test_page_faults_of_one_step() -> None:
    def read(clock: FakeClock) -> PageFaults:
        return PageFaults(round(50_000 * clock.now()), round(100 * clock.now()))

    found = run_windows(until(3), read_faults=read)
    assert found.minor_faults_per_step == pytest.approx(500, rel=1e-3)
    assert found.major_faults_per_step == pytest.approx(1, rel=0.02)


def test_page_faults_of_a_pause_do_not_count() -> None:
    begun = []

    def read(clock: FakeClock) -> PageFaults:
        begun.append(clock.now())
        return PageFaults(1_000_000 if clock.now() > 1.3 else 0, 0)

    found = run_windows(lambda done: "stretch" if done == 2 else until(4)(done), read_faults=read)
    assert begun[0] < 1.3 < begun[-1]
    assert found.minor_faults_per_step == 0.0


@pytest.mark.parametrize("read", [None, lambda _: None])
def test_page_faults_that_are_not_counted_are_unknown(read: Callable[[FakeClock], PageFaults | None] | None) -> None:
    found = run_windows(until(2), read_faults=read)
    assert found.minor_faults_per_step is None
    assert found.major_faults_per_step is None


def test_cpu_time_of_one_step() -> None:
    found = run_windows(until(3), read_cpu_s=lambda clock: 0.5 * clock.now())
    assert found.cpu_per_step_s == pytest.approx(0.5 * STEP_S)
    assert run_windows(until(3)).cpu_per_step_s is None


def test_what_was_measured_is_kept_when_the_step_fails() -> None:
    found = run_windows(until(9), work={"fails_at": 150}, read_cpu_s=lambda clock: 0.5 * clock.now())
    assert len(found.stretches) == 1
    assert 2 <= len(found.stretches[0]) < 5
    assert found.cpu_per_step_s == pytest.approx(0.5 * STEP_S)
    assert (len(found.states_before), len(found.states_after)) == (1, 0)


def test_clocks_that_some_reads_lack() -> None:
    assert mean_clocks([{"gpu0": 1.0}, {"gpu0": 3.0, "gpu1": 5.0}, {}]) == {"gpu0": 2.0, "gpu1": 5.0}
    assert Windows(StepLog()).mean_clocks_mhz == {}
