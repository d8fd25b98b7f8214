"""The energy of stretches of time, against a device that knows its exact energy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import GPU, PowerCurve, counter_domain, counter_readings, power_readings
from joulediff.measuring.blocks.stretch_energy import energy_in
from joulediff.measuring.energy_curve import curve_from_start
from joulediff.model.errors import MeterFailed

STEADY = PowerCurve([0.0, 100.0], [200.0, 200.0])
COUNTER = counter_domain(0.001, unit_j=1e-6)
END_S = 2.0


def random_power(powers):
    return PowerCurve(np.linspace(0.0, END_S, len(powers)), powers)


def stretches_of(edges):
    edges = sorted(edges)
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False) if b > a]


def test_steady_power_between_samples():
    curve = curve_from_start(GPU, power_readings(STEADY, np.arange(0.0, 1.0, 0.02)))
    found = energy_in(curve, [(0.105, 0.515)])
    assert found.joules == pytest.approx(0.41 * 200)
    assert found.low_j < found.joules < found.high_j
    assert found.high_j - found.low_j < 0.1 * found.joules
    assert found.unread_s == 0.0


def test_a_stretch_shorter_than_the_time_between_two_samples_may_have_nearly_all_of_it_or_nothing():
    curve = curve_from_start(GPU, power_readings(STEADY, np.arange(0.0, 1.0, 0.02)))
    found = energy_in(curve, [(0.105, 0.106)])
    assert found.joules == pytest.approx(0.2)
    assert found.low_j == 0.0
    assert found.high_j == pytest.approx(0.02 * 200)


def test_a_counter_that_stood_still_saw_less_than_its_resolution():
    counter = counter_domain(1.0, unit_j=0.5)
    readings = counter_readings(STEADY, [0.0], [0.1, 0.2, 0.3], unit_j=0.5)
    energy = energy_in(curve_from_start(counter, readings), [(0.15, 0.25)]).to_energy(counter)
    assert (energy.joules, energy.low) == (0.25, 0.0)
    assert energy.high >= 0.5


def test_time_without_readings_is_said_and_widens_the_interval():
    curve = curve_from_start(GPU, power_readings(STEADY, np.arange(0.0, 1.0, 0.02)))
    found = energy_in(curve, [(0.9, 1.5)])
    assert found.unread_s == pytest.approx(1.5 - 0.98)
    assert found.high_j > 0.6 * 200


def test_a_counter_that_runs_backwards_raises():
    readings = [*counter_readings(STEADY, [0.0, 0.1, 0.2], [0.1, 0.2]), *counter_readings(STEADY, [0.0], [0.3])]
    with pytest.raises(MeterFailed, match="went backwards"):
        curve_from_start(COUNTER, readings)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(50, 500), min_size=2, max_size=30),
    st.lists(st.floats(0.05, 1.9), min_size=2, max_size=12, unique=True),
    st.integers(5, 200),
)
def test_the_interval_of_a_counter_holds_the_exact_energy(powers, edges, reads):
    """Whatever the reads, as long as no power is far above the mean powers that they show."""
    power, stretches = random_power(powers), stretches_of(edges)
    ticks = np.arange(0.0, END_S, COUNTER.period_s)
    curve = curve_from_start(COUNTER, counter_readings(power, ticks, np.linspace(0.01, END_S, reads), unit_j=1e-6))
    exact_j = sum(power.between(a, b) for a, b in stretches)
    energy = energy_in(curve, stretches).to_energy(COUNTER)
    assert energy.low <= exact_j <= energy.high


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.05, 1.9), min_size=2, max_size=12, unique=True), st.floats(0.06, 1.8))
def test_parts_sum_to_the_whole(edges, cut_s):
    curve = curve_from_start(GPU, power_readings(random_power([100, 300, 50, 400]), np.arange(0.0, END_S, 0.02)))
    stretches = stretches_of(edges)
    first = [(a, min(b, cut_s)) for a, b in stretches if a < cut_s]
    rest = [(max(a, cut_s), b) for a, b in stretches if b > cut_s]
    whole = energy_in(curve, stretches)
    parts = sum(energy_in(curve, each).joules for each in (first, rest) if each)
    assert parts == pytest.approx(whole.joules)
