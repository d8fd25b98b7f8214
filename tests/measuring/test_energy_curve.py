"""Energy from readings equals the integral of the power that made them, within the stated interval."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import GPU, PowerCurve, counter_domain, counter_readings, power_readings
from joulediff.measuring.energy_curve import Curve
from joulediff.model.errors import MeterFailed, NotCovered
from joulediff.model.measurement import Reading

SEEDS = st.integers(0, 2**32 - 1)


def random_curve(rng, *, seconds=4.0, knot_s=0.05):
    """A load that jumps and drifts: 60 to 900 W, a new direction every `knot_s` on average."""
    knots = np.concatenate([[0.0], np.cumsum(rng.exponential(knot_s, int(seconds / knot_s) + 50) + 1e-3)])
    return PowerCurve(knots, rng.uniform(60, 900, len(knots)))


def ticks_with_jitter(rng, period_s, seconds):
    return np.cumsum(
        rng.normal(period_s, 0.02 * period_s, int(seconds / period_s) + 5).clip(0.91 * period_s, 1.09 * period_s)
    )


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, period_s=st.sampled_from([0.001, 0.02, 0.1]), call_s=st.sampled_from([0.0, 0.0045]))
def test_counter_energy_between_ticks_is_exact_and_its_time_bounded(seed, period_s, call_s):
    rng = np.random.default_rng(seed)
    power = random_curve(rng)
    ticks_s = ticks_with_jitter(rng, period_s, 4.0)
    reads_s = np.cumsum(rng.uniform(0.6, 1.8, 400) * max(call_s, 0.009))
    reads_s = reads_s[(reads_s > 0.05) & (reads_s < 3.9)]
    wrap_j = float(power.between(0, 4.0)) * 0.4
    start_j = rng.uniform(0, wrap_j)
    readings = counter_readings(power, ticks_s, reads_s, wrap_j=wrap_j, call_s=call_s, start_j=start_j)
    domain = counter_domain(period_s, wrap_j=wrap_j)
    window = Curve.from_readings(domain, readings).window(0.5, 3.5)

    def ticks_near(time_s, err_s):
        return ticks_s[(ticks_s >= time_s - err_s - 1e-9) & (ticks_s <= time_s + err_s + 1e-9)]

    candidates_j = [
        power.between(a, b)
        for a in ticks_near(window.start_s, window.start_err_s)
        for b in ticks_near(window.end_s, window.end_err_s)
    ]
    assert min(abs(j - window.energy.joules) for j in candidates_j) <= 2 * domain.resolution_j
    assert window.energy.low <= window.energy.joules <= window.energy.high
    assert window.end_err_s <= period_s + 0.03


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, start_s=st.floats(0.3, 1.5), length_s=st.floats(0.3, 2.0))
def test_counter_energy_between_any_moments_is_bounded(seed, start_s, length_s):
    rng = np.random.default_rng(seed)
    power = random_curve(rng)
    ticks_s = ticks_with_jitter(rng, 0.1, 4.0)
    readings = counter_readings(power, ticks_s, np.arange(0.02, 4.0, 0.007), call_s=0.004)
    window = Curve.from_readings(counter_domain(0.1), readings).between(start_s, start_s + length_s)
    assert window.energy.low - 1e-3 <= power.between(start_s, start_s + length_s) <= window.energy.high + 1e-3


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, dropped=st.floats(0.0, 0.1), jitter=st.floats(0.0, 0.4))
def test_power_samples_hold_the_integral_within_their_interval(seed, dropped, jitter):
    """Samples with jittered stamps, some lost. The curve may turn between two samples, but not twice."""
    rng = np.random.default_rng(seed)
    period_s = GPU.period_s
    stamps_s = np.arange(0.0, 4.0, period_s) + rng.uniform(-jitter, jitter, 200) * period_s
    # Turning points lie at samples or between them; half of them are seen only through their neighbours.
    turns_s = np.sort(np.concatenate([stamps_s[::3], stamps_s[1::6] + 0.4 * period_s, [-1.0, 5.0]]))
    power = PowerCurve(turns_s, 400 + np.cumsum(rng.normal(0, 30, len(turns_s))).clip(-300, 400))
    kept = stamps_s[(rng.random(200) > dropped) | (np.arange(200) % 50 == 0)]
    window = Curve.from_readings(GPU, power_readings(power, kept)).window(0.5, 3.5)
    true_j = power.between(window.start_s, window.end_s)
    slack_j = 0.02 * (window.energy.high - window.energy.low)
    assert window.energy.low - slack_j <= true_j <= window.energy.high + slack_j
    assert window.energy.high - window.energy.low < 0.5 * true_j


def test_constant_power_has_no_doubt_beyond_the_resolution():
    power = PowerCurve([0, 10], [250, 250])
    window = Curve.from_readings(GPU, power_readings(power, np.arange(0, 4, 0.02))).window(1, 3)
    assert window.energy.joules == pytest.approx(500, rel=1e-9)
    assert window.energy.high - window.energy.low == pytest.approx(2 * GPU.resolution_j)


def test_mean_power_and_energy_at_any_moment():
    curve = Curve.from_readings(GPU, power_readings(PowerCurve([0, 10], [250, 250]), np.arange(0, 4, 0.02)))
    assert curve.window(1, 3).power_w == pytest.approx(250)
    assert np.diff(curve.energy_at(np.array([1.005, 1.015, 2.015]))) == pytest.approx([2.5, 250.0])


def test_missed_ticks_widen_the_time_and_not_the_energy():
    power = PowerCurve([0, 20], [300, 300])
    ticks_s = np.arange(0.1, 10, 0.1)
    rare = counter_readings(power, ticks_s, np.arange(0.05, 9.9, 0.73))
    window = Curve.from_readings(counter_domain(0.1), rare).window(1, 9)
    assert window.end_err_s <= 0.056
    steps_w = window.energy.joules / window.duration_s
    assert steps_w == pytest.approx(300, rel=0.02)


def test_wrap_around_is_followed():
    domain = counter_domain(0.001, unit_j=1e-6, wrap_j=100.0)
    values = [95.0, 99.0, 3.0, 7.0, 11.0]
    readings = [Reading("gpu0", "counter", 0.1 * i, v) for i, v in enumerate(values)]
    curve = Curve.from_readings(domain, readings)
    assert curve.energy_j[-1] == pytest.approx(16.0)


@pytest.mark.parametrize("wrap_j", [None, 1000.0])
def test_a_counter_that_goes_backwards_is_an_error(wrap_j):
    domain = counter_domain(0.001, wrap_j=wrap_j)
    readings = [Reading("gpu0", "counter", 0.1 * i, v) for i, v in enumerate([10.0, 20.0, 15.0, 30.0])]
    with pytest.raises(MeterFailed, match="went backwards"):
        Curve.from_readings(domain, readings)


def test_silence_is_not_zero():
    with pytest.raises(NotCovered, match="changed 0 times"):
        Curve.from_readings(counter_domain(0.1), [Reading("gpu0", "counter", 0.1 * i, 5.0) for i in range(9)])
    with pytest.raises(NotCovered):
        Curve.from_readings(GPU, [Reading("gpu0", "power", 0.0, 100.0)])


def test_a_window_outside_the_readings_is_refused():
    power = PowerCurve([0, 10], [250, 250])
    curve = Curve.from_readings(GPU, power_readings(power, np.arange(0, 4, 0.02)))
    with pytest.raises(NotCovered):
        curve.window(5, 6)
    with pytest.raises(NotCovered):
        curve.between(3.5, 4.5)


def test_a_window_that_is_mostly_a_gap_is_refused():
    power = PowerCurve([0, 10], [250, 250])
    stamps_s = [*np.arange(0, 1, 0.02), *np.arange(2, 4, 0.02)]
    curve = Curve.from_readings(GPU, power_readings(power, stamps_s))
    with pytest.raises(NotCovered, match="no readings for"):
        curve.window(0.5, 3)
    assert curve.window(2.5, 3.5).energy.joules == pytest.approx(250, rel=1e-6)
