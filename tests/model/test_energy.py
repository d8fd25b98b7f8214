"""Arithmetic on energies: values as floats have them, intervals that hold, and None for what is not finite."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.model.energy import (
    Energy,
    Source,
    add,
    add_common,
    add_independent,
    around,
    at_most,
    mean,
    scale,
    subtract,
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


def test_what_is_not_finite_is_unknown() -> None:
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
