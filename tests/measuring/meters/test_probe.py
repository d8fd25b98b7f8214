from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, cycle

import pytest

from joulediff.measuring.doctor import probe
from joulediff.measuring.meters.meter import Meter
from joulediff.measuring.meters.scripted import FakeClock, ScriptedMeter
from joulediff.model.measurement import Domain, Kind, Reading

UNIT_J = 1e-3
TICK_S = 0.1
LONG_S = 3.0


def domain(kind: Kind) -> Domain:
    return Domain(
        "gpu0", kind, "a card", f"key/{kind}", period_s=9.0, resolution_j=9.0, repeat_share=0.01, window_s=0.5
    )


def counter_readings(*, start_mj: int = 0) -> list[Reading]:
    """A counter of millijoules, read every millisecond, that gains 7 J or a little more at each tick."""
    gains_mj = cycle([7000, 7000, 7001, 7003, 7003])
    ticks_mj = list(accumulate((next(gains_mj) for _ in range(int(LONG_S / TICK_S))), initial=start_mj))
    return [
        Reading("gpu0", "counter", i * 1e-3, ticks_mj[int(i * 1e-3 / TICK_S + 1e-9)] * UNIT_J)
        for i in range(int(LONG_S * 1e3))
    ]


def power_readings(*, period_s: float = 0.02, within_s: float = 0.0) -> list[Reading]:
    watts = cycle([100.0, 100.5, 103.0, 100.5])
    return [Reading("gpu0", "power", i * period_s, next(watts), within_s) for i in range(int(LONG_S / period_s))]


def scripted(kind: Kind, readings: list[Reading], *, clock: FakeClock, dies_at_s: float | None = None) -> ScriptedMeter:
    return ScriptedMeter([domain(kind)], readings, clock=clock, dies_at_s=dies_at_s)


# A month at 400 W is 1e9 J: a float holds that to 0.1 µJ.
@pytest.mark.parametrize("start_mj", [0, 123_456, 1_000_000_012_345])
def test_a_counter_that_ticks(start_mj: int) -> None:
    clock = FakeClock()
    (found,) = probe(scripted("counter", counter_readings(start_mj=start_mj), clock=clock), clock=clock)
    assert found.key == "key/counter"
    assert found.period_s == pytest.approx(TICK_S, rel=0.1)
    assert found.resolution_j == pytest.approx(UNIT_J, rel=0.1)
    assert found.overhead_share >= 0
    assert clock.now() == pytest.approx(1.0, abs=0.01)


def test_a_counter_that_gains_the_same_at_every_tick() -> None:
    clock = FakeClock()
    readings = [Reading("gpu0", "counter", i * 1e-3, 0.25 * (i // 100)) for i in range(3000)]
    (found,) = probe(scripted("counter", readings, clock=clock), clock=clock)
    assert (found.period_s, found.resolution_j) == (pytest.approx(TICK_S, rel=0.1), pytest.approx(0.25))


def test_power_samples_with_their_own_stamps() -> None:
    clock = FakeClock()
    (found,) = probe(scripted("power", power_readings(), clock=clock), clock=clock)
    assert found.period_s == pytest.approx(0.02, rel=0.1)
    assert found.resolution_j == pytest.approx(0.5 * 0.02, rel=0.1)


def test_samples_that_repeat_their_value_are_still_samples() -> None:
    clock = FakeClock()
    readings = [Reading("gpu0", "power", i * 0.02, 100.0 + (i // 5 % 2)) for i in range(150)]
    (found,) = probe(scripted("power", readings, clock=clock), clock=clock)
    assert found.period_s == pytest.approx(0.02, rel=0.1)


def test_polled_power_is_new_when_its_value_is() -> None:
    clock = FakeClock()
    readings = [Reading("gpu0", "power", i * 1e-3, 100.0 + (i // 50 % 2), 1e-5) for i in range(3000)]
    (found,) = probe(scripted("power", readings, clock=clock), clock=clock)
    assert found.period_s == pytest.approx(0.05, rel=0.1)


def test_what_a_look_costs() -> None:
    class SlowMeter(ScriptedMeter):
        def poll(self) -> list[Reading]:
            clock.advance(0.004)
            return super().poll()

    clock = FakeClock()
    (found,) = probe(SlowMeter([domain("counter")], counter_readings(), clock=clock), clock=clock)
    assert found.call_s == pytest.approx(0.004)


def test_two_instruments_are_polled_one_after_the_other() -> None:
    class TwoInstruments(ScriptedMeter):
        def check_readings(self) -> list[Reading]:
            ticks = int(clock.now() / TICK_S + 1e-9)
            return [Reading("gpu0", "counter", clock.now(), (7000 * ticks + ticks // 3) * UNIT_J, 0.003)]

    clock = FakeClock()
    both = [domain("power"), domain("counter")]
    power, counter = probe(TwoInstruments(both, power_readings(), clock=clock), clock=clock)
    assert (power.key, counter.key) == ("key/power", "key/counter")
    assert power.period_s == pytest.approx(0.02, rel=0.1)
    assert counter.period_s == pytest.approx(TICK_S, rel=0.1)
    assert counter.resolution_j == pytest.approx(UNIT_J, rel=0.1)
    assert clock.now() == pytest.approx(2.0, abs=0.01)


def test_a_meter_that_dies_teaches_what_it_said_before() -> None:
    clock = FakeClock()
    (found,) = probe(scripted("counter", counter_readings(), clock=clock, dies_at_s=0.55), clock=clock)
    assert found.period_s == pytest.approx(TICK_S, rel=0.1)
    assert clock.now() < 0.6


@pytest.mark.parametrize("dies_at_s", [0.0, 0.15])
def test_a_meter_that_dies_early_teaches_nothing(dies_at_s: float) -> None:
    clock = FakeClock()
    assert probe(scripted("counter", counter_readings(), clock=clock, dies_at_s=dies_at_s), clock=clock) == []


def silent(clock: FakeClock) -> Meter:
    return scripted("power", [Reading("gpu0", "power", 100.0, 1.0)], clock=clock)


def still(clock: FakeClock) -> Meter:
    return scripted("counter", [Reading("gpu0", "counter", i * 1e-3, 5.0) for i in range(3000)], clock=clock)


def slow(clock: FakeClock) -> Meter:
    return scripted("counter", [Reading("gpu0", "counter", i * 0.4, float(i)) for i in range(10)], clock=clock)


@pytest.mark.parametrize("build", [silent, still, slow])
def test_a_meter_that_hardly_changes_teaches_nothing(build: Callable[[FakeClock], Meter]) -> None:
    clock = FakeClock()
    assert probe(build(clock), clock=clock) == []
    assert clock.now() == pytest.approx(1.0, abs=0.01)
