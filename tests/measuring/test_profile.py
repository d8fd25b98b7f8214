"""A power curve folded on the phase of the step: it conserves energy, and shows where in the step the watts are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import GPU, PowerCurve, counter_domain, counter_readings, power_readings
from joulediff.measuring.energy_curve import Curve
from joulediff.measuring.repeater import StepLog
from joulediff.measuring.result import LEAST_PARTS, MAX_PARTS, fold


def marks(step_s, count, *, start_s=0.0, per_mark=1):
    times_s = start_s + step_s * np.arange(count + 1)
    return StepLog(times_s.tolist(), [per_mark * n for n in range(count + 1)])


def two_levels(step_s, count, high_w=600.0, low_w=200.0):
    """High in the first half of every step, low in the second."""
    knots_s, watts = [-1.0], [low_w]
    for n in range(count):
        for at_s, level_w in ((n * step_s, high_w), ((n + 0.5) * step_s, low_w)):
            knots_s += [at_s - 1e-9, at_s]
            watts += [watts[-1], level_w]
    return PowerCurve([*knots_s, count * step_s + 1], [*watts, low_w])


def sampled(power, end_s, period_s=GPU.period_s, lost=()):
    stamps_s = [t for t in np.arange(-0.5, end_s + 0.5, period_s) if not any(a < t < b for a, b in lost)]
    return Curve.from_readings(replace(GPU, period_s=period_s), power_readings(power, stamps_s))


def test_it_shows_where_in_the_step_the_watts_are():
    step_s = 1.013  # no multiple of the period: the samples fall on other phases in every step
    profile = fold(sampled(two_levels(step_s, 20), 21.0), marks(step_s, 20), [[0.1, 20.3]], step_s=step_s, energy_j=405)
    assert len(profile) == 50
    assert profile[2:23] == pytest.approx([600] * 21, rel=0.01)
    assert profile[27:48] == pytest.approx([200] * 21, rel=0.02)
    assert np.mean(profile) * step_s == pytest.approx(405, rel=1e-12)


def test_steps_of_different_lengths_are_folded_by_their_phase():
    ends_s = np.cumsum([0.0, 0.8, 1.2, 1.0, 0.9, 1.1])
    knots = [(t, w) for a, b in pairwise(ends_s) for t, w in ((a, 300.0), (b - 1e-9, 500.0))]
    power = PowerCurve([-1.0, *(t for t, _ in knots), 7.0], [300.0, *(w for _, w in knots), 300.0])
    profile = fold(
        sampled(power, 6.0), StepLog(ends_s.tolist(), list(range(6))), [[0.0, 5.0]], step_s=1.0, energy_j=400.0
    )
    assert profile[3:47] == pytest.approx(np.linspace(300, 500, 101)[1::2][3:47], rel=0.02)


@pytest.mark.parametrize(
    ("step_s", "period_s", "parts"),
    [(0.2, 0.02, 10), (0.199, 0.02, None), (1.0, 0.1, 10), (0.5, 0.02, 25), (30.0, 0.02, MAX_PARTS), (0.5, 0.1, None)],
)
def test_as_many_parts_as_the_meter_resolves(step_s, period_s, parts):
    power = PowerCurve([-2, 100], [300, 300])
    found = fold(sampled(power, 3 * step_s, period_s), marks(step_s, 3), [[0.0, 3 * step_s]], step_s=step_s, energy_j=7)
    assert (found and len(found)) == parts
    assert found is None or found == pytest.approx([7 / step_s] * parts)


def test_a_counter_has_no_profile():
    power = PowerCurve([-2, 100], [300, 300])
    readings = counter_readings(power, np.arange(0.0, 9.0, 0.01), np.arange(0.1, 9.0, 0.01))
    curve = Curve.from_readings(counter_domain(0.01), readings)
    assert fold(curve, marks(1.0, 5), [[1.0, 5.0]], step_s=1.0, energy_j=300) is None


def test_steps_that_were_not_marked_one_by_one_have_no_profile():
    power = PowerCurve([-2, 100], [300, 300])
    together = marks(1.0, 5, per_mark=2)
    assert fold(sampled(power, 5.0), together, [[0.0, 5.0]], step_s=0.5, energy_j=150) is None


def test_steps_with_lost_samples_are_left_out():
    power, alone = two_levels(1.0, 5), marks(1.0, 5)
    holey = sampled(power, 5.0, lost=[(1.2, 1.8), (3.4, 3.6)])
    whole = sampled(power, 5.0)
    options = {"step_s": 1.0, "energy_j": 400.0}
    kept = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert fold(holey, alone, [[0.0, 5.0]], **options) == pytest.approx(fold(whole, alone, kept, **options))
    assert fold(holey, alone, [[1.0, 2.0]], **options) is None


def test_a_meter_that_stops_leaves_the_steps_it_covered():
    curve = sampled(two_levels(1.0, 5), 2.2)
    options = {"step_s": 1.0, "energy_j": 400.0}
    assert fold(curve, marks(1.0, 5), [[0.0, 5.0]], **options) == fold(
        curve, marks(1.0, 5), [[0.0, 1.0, 2.0]], **options
    )
    assert fold(curve, marks(1.0, 5), [[3.0, 5.0]], **options) is None


def test_without_a_joule_there_is_nothing_to_scale():
    assert fold(sampled(PowerCurve([-2, 9], [0, 0]), 3.0), marks(1.0, 3), [[0, 3]], step_s=1.0, energy_j=0.0) is None


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    periods=st.floats(LEAST_PARTS, 400),
    count=st.integers(1, 12),
    swing=st.floats(0.0, 0.3),
    jitter=st.floats(0.0, 0.4),
    energy_j=st.floats(1e-3, 1e6),
)
def test_its_mean_is_the_energy_of_the_step(seed, periods, count, swing, jitter, energy_j):
    rng = np.random.default_rng(seed)
    period_s = float(rng.choice([0.001, 0.02, 0.1]))
    step_s = periods * period_s
    ends_s = np.concatenate([[0.0], np.cumsum(step_s * (1 + swing * rng.uniform(-1, 1, count)))])
    stamps_s = np.arange(-3, ends_s[-1] / period_s + 3) * period_s
    stamps_s += rng.uniform(-jitter, jitter, len(stamps_s)) * period_s
    power = PowerCurve(stamps_s, rng.uniform(60, 900, len(stamps_s)))
    curve = Curve.from_readings(replace(GPU, period_s=period_s), power_readings(power, stamps_s))
    log = StepLog(ends_s.tolist(), list(range(count + 1)))
    profile = fold(curve, log, [[0.0, float(ends_s[-1])]], step_s=step_s, energy_j=energy_j)
    assert LEAST_PARTS - 1 <= len(profile) <= MAX_PARTS
    assert float(np.mean(profile)) * step_s == pytest.approx(energy_j, rel=1e-12)
    assert min(profile) > 0
