"""Steps count when their work is done, also if it is only queued."""

import pytest

from joulediff.measuring.meters.scripted import FakeClock
from joulediff.measuring.repeater import IN_FLIGHT, Repeater
from joulediff.model.errors import JoulediffError


class QueuedDevice:
    """Runs steps one after the other, later than they were queued. `mark` is its synchronization."""

    def __init__(self, clock, step_s, launch_s):
        self.clock, self.step_s, self.launch_s = clock, step_s, launch_s
        self.done_at_s = [0.0]
        self.longest_queue_s = 0.0

    def step(self):
        self.clock.advance(self.launch_s)
        start_s = max(self.clock.now(), self.done_at_s[-1])
        self.done_at_s.append(start_s + self.step_s)
        self.longest_queue_s = max(self.longest_queue_s, self.done_at_s[-1] - self.clock.now())

    def mark(self, output):
        done_s = self.done_at_s[-1]
        return lambda: self.clock.advance(max(0.0, done_s - self.clock.now()))


def make_repeater(monkeypatch, step_s, launch_s):
    clock = FakeClock()
    device = QueuedDevice(clock, step_s, launch_s)
    monkeypatch.setattr("joulediff.measuring.repeater.open_sync", lambda: device)
    repeater = Repeater(device.step, clock=clock)
    repeater.warm_up()
    return clock, device, repeater


@pytest.mark.parametrize(("step_s", "launch_s"), [(5e-5, 5e-6), (1e-3, 1e-5), (0.2, 1e-4), (2e-5, 8e-5)])
def test_marks_show_when_the_device_was_done(monkeypatch, step_s, launch_s):
    clock, device, repeater = make_repeater(monkeypatch, step_s, launch_s)
    warm = len(device.done_at_s) - 1
    repeater.run_until(clock.now() + 1.0)
    repeater.drain()
    log = repeater.log
    lag_s = [time_s - device.done_at_s[warm + steps] for time_s, steps in zip(log.time_s, log.steps, strict=True)]
    assert min(lag_s[1:]) >= -1e-9
    assert max(lag_s) <= 0.02
    pace_s = (log.time_s[-1] - log.time_s[0]) / log.steps[-1]
    assert pace_s == pytest.approx(max(step_s, launch_s), rel=0.02)


def test_the_device_is_kept_busy_and_its_queue_short(monkeypatch):
    clock, device, repeater = make_repeater(monkeypatch, step_s=5e-5, launch_s=5e-6)
    begin_s = clock.now()
    repeater.run_until(begin_s + 1.0)
    assert device.longest_queue_s < (IN_FLIGHT + 2) * 0.005
    assert len(device.done_at_s) * 5e-5 > 0.97 * (clock.now() - begin_s)


def test_a_long_step_is_waited_for_at_once(monkeypatch):
    clock, _, repeater = make_repeater(monkeypatch, step_s=0.3, launch_s=1e-4)
    begin_s = clock.now()
    repeater.run_until(begin_s + 1.0)
    assert clock.now() - begin_s < 1.31
    repeater.drain()
    assert clock.now() - begin_s < 1.31


def test_a_step_that_returns_a_coroutine_is_refused():
    async def step():
        return 1

    with pytest.raises(JoulediffError, match="coroutine that is never run"):
        Repeater(step, clock=FakeClock()).warm_up()
