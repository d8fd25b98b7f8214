"""Arithmetic on energies: values as floats have them, intervals that hold, and None for what is not finite."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.model.energy import (
    Energy,
    Ratio,
    Source,
    add,
    add_common,
    add_independent,
    agree,
    around,
    at_most,
    costlier_side,
    difference_j,
    higher_over_lower,
    is_at_most,
    is_more_than,
    lowest,
    mean,
    mean_power_w,
    overlap,
    ratio,
    remainder,
    saved_share,
    scale,
    share_of,
    shift,
    subtract,
    subtract_common,
    to_energy,
    widen,
)
from joulediff.model.measurement import IdlePower

JOULES = st.floats(-1e3, 1e3)
ERRORS = st.floats(0.0, 1e2)
HUGE = 1.5e308


@st.composite
def energies(draw: st.DrawFn) -> Energy:
    joules = draw(JOULES)
    return Energy(joules, joules - draw(ERRORS), joules + draw(ERRORS), draw(st.sampled_from(["metered", "estimated"])))


def known(found: Energy | None) -> Energy:
    assert found is not None
    return found


def ends(found: Energy) -> tuple[float, float, float]:
    return found.joules, found.below_j, found.above_j


@given(st.lists(energies(), min_size=1, max_size=6))
def test_independent_errors_add_in_quadrature_and_common_ones_add_up(parts: list[Energy]) -> None:
    below, above = [part.below_j for part in parts], [part.above_j for part in parts]
    joules = sum(part.joules for part in parts)
    assert ends(known(add_independent(parts))) == pytest.approx((joules, math.hypot(*below), math.hypot(*above)))
    assert ends(known(add_common(parts))) == pytest.approx((joules, sum(below), sum(above)), abs=1e-9)


def test_a_sum_by_measurement() -> None:
    parts = [("first", Energy(1.0, 0.7, 1.3, "replayed"))] * 2 + [("second", Energy(2.0, 1.2, 2.8, "metered"))]
    assert ends(known(add(parts))) == pytest.approx((4.0, 1.0, 1.0))
    assert known(add(parts)).source == "replayed"
    assert add([]) is None


@given(energies(), st.lists(energies(), max_size=4))
def test_a_difference_turns_the_parts_around(whole: Energy, parts: list[Energy]) -> None:
    found = known(subtract(whole, parts))
    assert found.joules == pytest.approx(whole.joules - sum(part.joules for part in parts), abs=1e-9)
    assert found.below_j == pytest.approx(math.hypot(whole.below_j, *(part.above_j for part in parts)), abs=1e-9)
    assert found.above_j == pytest.approx(math.hypot(whole.above_j, *(part.below_j for part in parts)), abs=1e-9)


@given(energies(), st.floats(0.0, 10.0), st.floats(0.0, 1.0))
def test_a_factor_and_its_error(energy: Energy, factor: float, error: float) -> None:
    assert ends(known(scale(energy, factor))) == pytest.approx([factor * each for each in ends(energy)], abs=1e-9)
    found = known(scale(energy, factor, error=error))
    assert found.joules == pytest.approx(factor * energy.joules)
    assert found.below_j == pytest.approx(math.hypot(factor * energy.below_j, error * energy.joules), abs=1e-9)
    assert found.above_j == pytest.approx(math.hypot(factor * energy.above_j, error * energy.joules), abs=1e-9)


@given(energies(), JOULES)
def test_joules_that_are_known_exactly_keep_the_interval(energy: Energy, joules: float) -> None:
    exact = around(joules, 0.0, energy.source)
    assert shift(energy, joules) == add_common([energy, known(exact)])
    assert shift(None, joules) is None


@given(energies(), ERRORS, ERRORS)
def test_a_further_error_widens_each_side(energy: Energy, below_j: float, above_j: float) -> None:
    found = known(widen(energy, below_j, above_j))
    expected = (energy.joules, math.hypot(energy.below_j, below_j), math.hypot(energy.above_j, above_j))
    assert ends(found) == pytest.approx(expected, abs=1e-9)
    assert widen(energy, below_j) == widen(energy, below_j, below_j)


@given(energies(), energies())
def test_a_mean_holds_both_values(first: Energy, second: Energy) -> None:
    found = known(mean(first, second))
    assert found.joules == pytest.approx((first.joules + second.joules) / 2)
    assert found.low <= min(first.joules, second.joules) + 1e-9
    assert found.high >= max(first.joules, second.joules) - 1e-9


@given(energies())
def test_no_energy_below_zero(energy: Energy) -> None:
    found = energy.not_negative()
    assert 0.0 <= found.low <= found.joules == max(0.0, energy.joules)
    assert found.above_j == pytest.approx(energy.above_j)


@given(energies())
def test_both_sides_alike(energy: Energy) -> None:
    found = energy.symmetric()
    assert found.joules == energy.joules
    assert found.below_j == pytest.approx(found.above_j, abs=1e-9)
    assert found.half_j == pytest.approx(energy.half_j, abs=1e-9)


@given(energies(), JOULES)
def test_no_more_than_a_limit(energy: Energy, limit_j: float) -> None:
    found = known(at_most(energy, limit_j))
    assert (found.joules, found.low, found.high) == tuple(
        min(each, limit_j) for each in (energy.joules, energy.low, energy.high)
    )


def test_the_energy_of_rest() -> None:
    rest = IdlePower(100.0, 98.0, 103.0, 0.0, 1.0)
    assert rest.over(0.5, "attributed") == Energy(50.0, 49.0, 51.5, "attributed")


def test_the_unknown_stays_unknown() -> None:
    assert scale(None, 2.0) is None
    assert widen(None, 1.0) is None
    assert at_most(None, 1.0) is None


def test_energy_that_is_not_finite_is_unknown() -> None:
    source: Source = "metered"
    huge = Energy(HUGE, HUGE, HUGE, source)
    assert to_energy(math.nan, 0.0, 1.0, source) is None
    assert around(1.0, math.inf, source) is None
    assert add_independent([huge, huge]) is None
    assert scale(huge, 2.0) is None
    assert subtract(Energy(-HUGE, -HUGE, -HUGE, source), [huge]) is None
    assert widen(huge, HUGE) is None


@pytest.mark.parametrize("bad", [(1.0, 2.0, 3.0), (1.0, 0.0, 0.5), (math.nan, 0.0, 1.0)])
def test_a_value_outside_of_its_interval_is_refused(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="outside its interval"):
        Energy(*bad, "metered")


@given(energies(), energies(), st.floats(0.0, 1.0))
def test_a_further_error_widens_a_difference(a: Energy, b: Energy, error: float) -> None:
    plain, wider = known(subtract(a, [b])), known(subtract(a, [b], error=error))
    further_j = math.hypot(error * a.joules, error * b.joules)
    expected = plain.joules, math.hypot(plain.below_j, further_j), math.hypot(plain.above_j, further_j)
    assert ends(wider) == pytest.approx(expected, abs=1e-9)


@given(energies(), energies())
def test_errors_of_a_common_difference_add_up(whole: Energy, part: Energy) -> None:
    found = known(subtract_common(whole, part))
    expected = whole.joules - part.joules, whole.below_j + part.above_j, whole.above_j + part.below_j
    assert ends(found) == pytest.approx(expected, abs=1e-9)
    assert found.source == part.source
    assert subtract_common(whole, None) is None


def test_a_remainder_has_a_symmetric_interval() -> None:
    whole, part = Energy(10.0, 7.0, 10.0, "metered"), Energy(12.0, 12.0, 16.0, "estimated")
    assert remainder(whole, [part, None]) == Energy(-2.0, -4.5, 0.5, "metered")
    assert remainder(whole, [None]) == whole
    assert remainder(None, [part]) is None


def test_the_lowest_measurement_has_the_narrowest_interval() -> None:
    found = lowest([Energy(3.0, 2.0, 4.0, "estimated"), Energy(4.0, 3.5, 4.5, "metered")])
    assert found == Energy(3.0, 2.5, 3.5, "estimated")


def test_no_work_costs_nothing() -> None:
    one = known(around(1.0, 0.1, "metered"))
    assert (difference_j(one, None), difference_j(None, one), difference_j(None, None)) == (1.0, -1.0, 0.0)
    assert (costlier_side(one, None), costlier_side(None, one), costlier_side(one, one)) == ("a", "b", "a")
    assert higher_over_lower(one, None) is None
    assert higher_over_lower(one, scale(one, 3.0)) == 3.0


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(0.0, 0.09), st.floats(0.0, 0.5))
def test_a_ratio_and_its_inverse_have_the_same_interval(a_j: float, b_j: float, half_j: float, error: float) -> None:
    a, b = around(a_j, half_j, "metered"), around(b_j, half_j, "metered")
    found, inverse = ratio(a, b, error=error), ratio(b, a, error=error)
    assert found is not None and inverse is not None
    assert found.low <= found.value <= found.high
    assert (1 / inverse.value, 1 / inverse.high, 1 / inverse.low) == pytest.approx((found.value, found.low, found.high))


def test_a_ratio_of_unknown_or_no_energy_is_unknown() -> None:
    one, zero = around(1.0, 0.1, "metered"), around(0.0, 0.1, "metered")
    assert [ratio(*pair) for pair in ((one, None), (None, one), (one, zero), (zero, one))] == [None] * 4
    assert Ratio(1.1, 0.9, 1.3).may_be_one and Ratio(1.0, 1.0, 1.0).may_be_one
    assert not Ratio(1.2, 1.1, 1.3).may_be_one


def test_shares_of_an_energy() -> None:
    four, zero = around(4.0, 0.1, "metered"), around(0.0, 0.0, "metered")
    assert (share_of(1.0, four), share_of(1.0, zero), share_of(1.0, None)) == (0.25, None, None)
    assert saved_share(four, scale(four, 0.75)) == 0.25
    assert [saved_share(*pair) for pair in ((zero, four), (None, four), (four, None))] == [None] * 3
    assert is_more_than(1.1, 0.25, four) and not is_more_than(1.0, 0.25, four) and not is_more_than(1.0, 0.25, None)
    assert is_at_most(four, 1.0, four) and not is_at_most(four, 0.9, four)
    assert not is_at_most(None, 1.0, four) and not is_at_most(four, 1.0, None)


def test_overlapping_intervals_need_not_agree() -> None:
    low, middle, high = (Energy(joules, joules - 1.0, joules + 1.0, "metered") for joules in (1.0, 2.5, 3.5))
    assert overlap(low, middle) and not agree(low, middle)
    assert overlap(middle, high) and agree(middle, high)
    assert not overlap(low, high) and not agree(low, high)


def test_the_unknown_overlaps_and_no_work_is_exactly_zero() -> None:
    near, far = Energy(1.0, 0.0, 2.0, "metered"), Energy(1.0, 0.5, 2.0, "metered")
    assert overlap(far, None) and overlap(None, None)
    assert agree(near, None) and agree(None, near) and agree(None, None)
    assert not agree(far, None)
    assert far.is_surely_positive and not near.is_surely_positive


def test_mean_power() -> None:
    energy = around(6.0, 1.0, "metered")
    assert mean_power_w(energy, 2.0) == 3.0
    assert mean_power_w(energy, 0.0) is None and mean_power_w(None, 1.0) is None
    assert mean_power_w(around(HUGE, 0.0, "metered"), 1e-3) is None
