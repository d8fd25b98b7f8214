from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from joulediff.measuring.meters.meter import Meter, RealClock
from joulediff.measuring.meters.scripted import FakeClock, ScriptedMeter
from joulediff.measuring.sampler import Sampler
from joulediff.model.errors import MeterFailed, NotCovered
from joulediff.model.measurement import DeviceState, Domain, Kind, Reading

LONG_S = 30.0


def domain(name: str = "gpu0", kind: Kind = "power", period_s: float = 0.1) -> Domain:
    return Domain(name, kind, "a card", f"{name}/{kind}", period_s, resolution_j=0.01, repeat_share=0.01, window_s=0.5)


def row(value_at: Callable[[int], float], seen: Domain, seconds: float = LONG_S) -> list[Reading]:
    count = int(seconds / seen.period_s)
    return [Reading(seen.name, seen.kind, i * seen.period_s, value_at(i)) for i in range(count)]


def power_meter(clock: FakeClock, *, name: str = "one", seen: Domain | None = None, **kwargs: Any) -> ScriptedMeter:
    seen = seen or domain()
    return named(name, ScriptedMeter([seen], row(lambda i: 100.0 + i, seen), clock=clock, **kwargs))


def counter_meter(clock: FakeClock, *values_j: float, name: str = "one", **kwargs: Any) -> ScriptedMeter:
    """A counter that says `values_j` and then the last of them for ever."""
    seen = domain("cpu", "counter")
    readings = row(lambda i: values_j[min(i, len(values_j) - 1)], seen)
    return named(name, ScriptedMeter([seen], readings, clock=clock, **kwargs))


def named(name: str, meter: ScriptedMeter) -> ScriptedMeter:
    meter.name = name
    return meter


def values(sampler: Sampler, meter: Meter) -> list[float]:
    return [r.value for r in sampler.readings(meter.domains[0])]


def test_readings_are_kept_in_order() -> None:
    clock = FakeClock(5.0)
    fast, slow = power_meter(clock, poll_s=0.02), counter_meter(clock, 1.0, 2.0, 4.0, name="two", poll_s=0.25)
    with Sampler([fast, slow], clock=clock) as sampler:
        clock.advance(1.05)
        assert values(sampler, fast) == [100.0 + i for i in range(11)]
        assert values(sampler, slow) == [1.0, 2.0, 4.0, *[4.0] * 8]
        times_s = [r.time_s for r in sampler.readings(fast.domains[0])]
        assert times_s == pytest.approx([5.0 + 0.1 * i for i in range(11)])
    assert sampler.failures == {}
    assert sampler.meter_count == 2


def test_nothing_is_polled_after_the_end() -> None:
    clock = FakeClock()
    meter = power_meter(clock)
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(0.55)
    clock.advance(5.0)
    assert len(values(sampler, meter)) == 6


def test_a_copy_is_returned() -> None:
    clock = FakeClock()
    meter = power_meter(clock)
    with Sampler([meter], clock=clock) as sampler:
        sampler.readings(meter.domains[0]).clear()
        assert values(sampler, meter) == [100.0]


def test_each_meter_is_polled_at_its_own_pace() -> None:
    class Counted(ScriptedMeter):
        polls = 0

        def poll(self) -> list[Reading]:
            self.polls += 1
            return super().poll()

    clock = FakeClock()
    seen = domain(), domain("gpu1")
    fast, slow = (Counted([d], row(float, d), clock=clock, poll_s=s) for d, s in zip(seen, (0.1, 0.5), strict=True))
    with Sampler([fast, slow], clock=clock):
        clock.advance(2.05)
    # Two meters' beats may fall together or half a millisecond apart.
    assert fast.polls == pytest.approx(21, abs=1)
    assert slow.polls == pytest.approx(5, abs=1)


def test_the_edge_of_a_window_is_polled_at_once() -> None:
    clock = FakeClock()
    meter = power_meter(clock, poll_s=10.0)
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(1.0)
        assert len(values(sampler, meter)) == 1
        sampler.edge()
        assert len(values(sampler, meter)) == 11


def test_a_meter_that_dies_is_noted_and_the_others_go_on() -> None:
    clock = FakeClock()
    dying, living = power_meter(clock, dies_at_s=0.45), counter_meter(clock, 1.0, 2.0, name="two")
    with Sampler([dying, living], clock=clock) as sampler:
        clock.advance(2.05)
        assert list(sampler.failures) == ["one"]
        assert "died at 0.450 s" in str(sampler.failures["one"])
        assert values(sampler, dying) == [100.0, 101.0, 102.0, 103.0, 104.0]
        assert len(values(sampler, living)) == 21
        assert sampler.curve(dying.domains[0]).energy_j[-1] == pytest.approx(40.8)


def test_a_meter_that_failed_before_it_made_a_curve_gives_the_reason() -> None:
    clock = FakeClock()
    dying, living = power_meter(clock, dies_at_s=0.05), power_meter(clock, name="two", seen=domain("gpu1"))
    with Sampler([dying, living], clock=clock) as sampler:
        with pytest.raises(NotCovered, match="gave 1 power samples"):
            sampler.curve(living.domains[0])
        clock.advance(1.0)
        with pytest.raises(MeterFailed, match="died at"):
            sampler.curve(dying.domains[0])


def test_a_counter_that_runs_backwards_keeps_what_came_before() -> None:
    clock = FakeClock()
    broken, living = counter_meter(clock, 1.0, 2.0, 3.0, 1.5, 4.0), power_meter(clock, name="two")
    with Sampler([broken, living], clock=clock) as sampler:
        clock.advance(1.05)
        assert "went backwards, from 3.000 to 1.500 J" in str(sampler.failures["one"])
        assert values(sampler, broken) == [1.0, 2.0, 3.0]
        assert len(values(sampler, living)) == 11


def test_stamps_that_run_backwards_keep_what_came_before() -> None:
    class Tangled(ScriptedMeter):
        def poll(self) -> list[Reading]:
            return [Reading("gpu0", "power", time_s, 7.0) for time_s in (1.0, 1.1, 1.05)]

    clock = FakeClock()
    meter = Tangled([domain()], [], clock=clock)
    with Sampler([meter], clock=clock) as sampler:
        assert "run backwards" in str(sampler.failures["scripted"])
        assert len(values(sampler, meter)) == 2


class TwoInstruments(ScriptedMeter):
    """Power samples, and a counter that says the next of `checks_j` at each look."""

    def __init__(self, clock: FakeClock, *checks_j: float) -> None:
        power, counter = domain(), domain(kind="counter")
        super().__init__([power, counter], row(float, power), clock=clock)
        self._checks_j = iter(checks_j)

    def check_readings(self) -> list[Reading]:
        return [Reading("gpu0", "counter", self._clock.now(), next(self._checks_j))]


def test_the_second_instrument_is_read_when_asked() -> None:
    clock = FakeClock()
    meter = TwoInstruments(clock, 5.0, 9.0)
    with Sampler([meter], clock=clock) as sampler:
        sampler.check()
        clock.advance(1.0)
        sampler.check()
        assert [(r.time_s, r.value) for r in sampler.readings(meter.domains[1])] == [(0.0, 5.0), (1.0, 9.0)]
        assert sampler.primary_domains() == [meter.domains[0]]
        assert sampler.check_domains() == [meter.domains[1]]


def test_a_second_instrument_that_runs_backwards_does_not_stop_the_program() -> None:
    clock = FakeClock()
    meter = TwoInstruments(clock, 5.0, 4.0)
    with Sampler([meter], clock=clock) as sampler:
        sampler.check()
        clock.advance(1.0)
        sampler.check()
        assert "went backwards" in str(sampler.failures["scripted"])
        sampler.check()
        assert len(sampler.readings(meter.domains[1])) == 1


def test_catch_up_returns_when_the_time_is_covered() -> None:
    clock = FakeClock()
    meter = power_meter(clock, poll_s=20.0)
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(1.03)
        sampler.catch_up(clock.now())
        assert sampler.readings(meter.domains[0])[-1].time_s == pytest.approx(1.1)
        assert 1.1 <= clock.now() < 1.25
        before_s = clock.now()
        sampler.catch_up(1.0)
        assert clock.now() == before_s


@pytest.mark.parametrize(("late_s", "at_most_s"), [(0.0, 0.4), (3.0, 3.0)])
def test_catch_up_gives_up_on_a_meter_without_readings(late_s: float, at_most_s: float) -> None:
    clock = FakeClock()
    readings = [Reading("gpu0", "power", time_s, 1.0) for time_s in (0.0, 0.1, 1000.0)]
    meter = ScriptedMeter([domain()], readings, clock=clock)
    meter.late_s = late_s
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(1.0)
        sampler.catch_up(1.0)
        assert 1.0 + at_most_s <= clock.now() <= 1.0 + at_most_s + 0.11
        assert sampler.failures == {}


def test_catch_up_does_not_wait_for_the_dead() -> None:
    clock = FakeClock()
    meter = power_meter(clock, dies_at_s=0.5)
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(1.0)
        sampler.catch_up(1.0)
        assert clock.now() == 1.0


def test_catch_up_notes_a_death_on_the_way() -> None:
    clock = FakeClock()
    meter = power_meter(clock, poll_s=20.0, dies_at_s=1.05)
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(1.04)
        sampler.catch_up(1.3)
        assert list(sampler.failures) == ["one"]
        assert clock.now() < 1.3
        assert len(values(sampler, meter)) == 11


def test_a_counter_that_stands_still() -> None:
    clock = FakeClock()
    still, power = counter_meter(clock, 1.0, 2.0), power_meter(clock, name="two")
    with Sampler([still, power], clock=clock) as sampler:
        clock.advance(3.05)
    (counter,) = still.domains
    assert sampler.stood_still(counter, 1.0, 3.0)
    assert not sampler.stood_still(counter, 0.0, 3.0)
    # It was not read for most of the time, so nobody knows.
    assert not sampler.stood_still(counter, 2.0, 9.0)
    assert not sampler.stood_still(counter, 2.01, 2.15)
    assert not sampler.stood_still(power.domains[0], 1.0, 3.0)


def test_states_of_the_living() -> None:
    clock = FakeClock()
    dying = power_meter(clock, dies_at_s=0.5, states=[DeviceState("gpu0")])
    living = power_meter(clock, name="two", seen=domain("gpu1"), states=[DeviceState("gpu1")])
    with Sampler([dying, living], clock=clock) as sampler:
        assert [s.domain for s in sampler.states()] == ["gpu0", "gpu1"]
        clock.advance(1.0)
        assert [s.domain for s in sampler.states()] == ["gpu1"]


def test_clocks_of_the_living() -> None:
    clock = FakeClock()
    dying = power_meter(clock, dies_at_s=0.5, states=[DeviceState("gpu0", clock_mhz=1500.0)])
    seen = domain("gpu1")
    living = power_meter(clock, name="two", seen=seen, states=[DeviceState("gpu1", 1980.0), DeviceState("gpu2")])
    with Sampler([dying, living], clock=clock) as sampler:
        assert sampler.clocks() == {"gpu0": 1500.0, "gpu1": 1980.0}
        clock.advance(1.0)
        assert sampler.clocks() == {"gpu1": 1980.0}


def test_clocks_of_a_library_that_raises_are_left_out_and_its_meter_lives() -> None:
    class Broken(ScriptedMeter):
        def clocks(self) -> dict[str, float]:
            raise RuntimeError("no such function")

    clock = FakeClock()
    seen = domain()
    with Sampler([Broken([seen], row(lambda i: 100.0, seen), clock=clock)], clock=clock) as sampler:
        assert sampler.clocks() == {}
    assert sampler.failures == {}


def test_the_cpu_time_of_polling_is_counted() -> None:
    class Costly(ScriptedMeter):
        def poll(self) -> list[Reading]:
            end_s = time.thread_time() + 0.005
            while time.thread_time() < end_s:
                pass
            return super().poll()

    clock = FakeClock()
    seen = domain()
    meter = Costly([seen], row(float, seen), clock=clock, poll_s=10.0)
    with Sampler([meter], clock=clock) as sampler:
        clock.advance(0.5)
        assert 0.01 <= sampler.cpu_share < 1.0
        assert sampler.cpu_s >= 0.005


class CountingMeter(Meter):
    """Speaks at every poll, and tells when it has been polled a few times."""

    name = "counting"
    poll_s = 0.001

    def __init__(self) -> None:
        self.domains = (domain("cpu", "counter"),)
        self.polls = 0
        self.polled_often = threading.Event()

    def poll(self) -> list[Reading]:
        self.polls += 1
        if self.polls >= 3:
            self.polled_often.set()
        return [Reading("cpu", "counter", time.perf_counter(), float(self.polls))]


def sampler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "joulediff-sampler"]


def test_the_thread_ends_with_the_sampler() -> None:
    meter = CountingMeter()
    with Sampler([meter], clock=RealClock()) as sampler:
        assert meter.polled_often.wait(30.0)
        assert len(sampler_threads()) == 1
    assert sampler_threads() == []
    assert values(sampler, meter) == [float(i + 1) for i in range(meter.polls)]


def test_the_thread_ends_when_the_program_fails() -> None:
    meter = CountingMeter()
    with pytest.raises(KeyboardInterrupt), Sampler([meter], clock=RealClock()):
        assert meter.polled_often.wait(30.0)
        raise KeyboardInterrupt
    assert sampler_threads() == []


def test_a_sampler_without_meters() -> None:
    with Sampler([], clock=FakeClock()) as sampler:
        sampler.edge()
        sampler.check()
        sampler.catch_up(1.0)
    assert (sampler.primary_domains(), sampler.states(), sampler.clocks(), sampler.failures) == ([], [], {}, {})
