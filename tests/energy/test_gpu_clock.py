"""Rests between bursts; factors for another clock or another cache: bounds, and no change where nothing differs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.energy.gpu_clock import (
    ALIKE_SHARE,
    HALF_BUSY,
    MAX_CACHE_SHARE,
    MAX_REST_SHARE,
    cache_factor,
    choose_rest_share,
    clock_factor,
)
from joulediff.energy.replay import MAX_WINDOW_S, MEAN_WINDOW_S, MIN_WINDOW_S, share_time

WATTS = st.floats(1.0, 2000.0)
MHZ = st.floats(200.0, 3000.0)
SECONDS = st.floats(1e-7, 1.0)


@given(power_w=WATTS, rest_w=WATTS, mean_w=WATTS)
def test_rests_give_the_mean_power_or_come_as_near_as_they_may(power_w: float, rest_w: float, mean_w: float) -> None:
    rest_share = choose_rest_share(power_w, rest_w=rest_w, mean_w=mean_w)
    if mean_w <= rest_w:
        assert rest_share == HALF_BUSY
        return
    assert 0.0 <= rest_share <= MAX_REST_SHARE
    drawn_w = rest_w + (power_w - rest_w) / (1 + rest_share)
    if rest_share == 0.0:
        assert drawn_w <= mean_w * (1 + 1e-9)
    elif rest_share < MAX_REST_SHARE:
        assert drawn_w == pytest.approx(mean_w)
    else:
        assert drawn_w >= mean_w * (1 - 1e-9)


@given(powers_w=st.lists(WATTS, min_size=2, max_size=2), rest_w=st.floats(1.0, 300.0), mean_w=st.floats(301.0, 900.0))
def test_the_more_an_operator_draws_the_longer_it_rests(powers_w: list[float], rest_w: float, mean_w: float) -> None:
    light, heavy = (choose_rest_share(power_w, rest_w=rest_w, mean_w=mean_w) for power_w in sorted(powers_w))
    assert light <= heavy


@given(MHZ, MHZ)
def test_the_energy_at_the_programs_clock_lies_between_following_it_and_not(clock: float, program: float) -> None:
    factor, doubt = clock_factor(clock, program, heavy=False)
    ends = sorted([1.0, program / clock])
    assert [factor - doubt, factor + doubt] == pytest.approx(ends)
    factor, doubt = clock_factor(clock, program, heavy=True)
    assert factor == pytest.approx(program / clock)
    assert doubt <= abs(program / clock - 1)


@given(MHZ, st.lists(MHZ, min_size=2, max_size=2))
def test_a_higher_clock_of_the_program_never_lowers_the_energy(clock: float, programs: list[float]) -> None:
    for heavy in (False, True):
        low, high = (clock_factor(clock, program, heavy=heavy)[0] for program in sorted(programs))
        assert low <= high


@given(MHZ)
def test_equal_or_unknown_clocks_change_nothing(clock: float) -> None:
    for pair in ((clock, clock), (None, clock), (clock, None), (0.0, clock), (clock, 0.0), (None, None)):
        assert clock_factor(*pair, heavy=True) == clock_factor(*pair, heavy=False) == (1.0, 0.0)


@given(SECONDS, SECONDS)
def test_another_cache_changes_energy_less_than_time(call_s: float, aim_s: float) -> None:
    factor, doubt = cache_factor(call_s, aim_s)
    ratio = aim_s / call_s
    low, high = factor - doubt, factor + doubt
    assert min(low, high) >= min(1.0, ratio) - 1e-9
    assert max(low, high) <= max(1.0, ratio) + 1e-9
    assert 1 - MAX_CACHE_SHARE - 1e-9 <= low <= 1 + 1e-9
    assert 1 - 1e-9 <= high <= 1 + MAX_CACHE_SHARE + 1e-9


@given(SECONDS, st.floats(1 - 0.99 * ALIKE_SHARE, 1 + 0.99 * ALIKE_SHARE))
def test_calls_that_take_about_as_long_change_nothing(call_s: float, ratio: float) -> None:
    assert cache_factor(call_s, ratio * call_s) == (1.0, 0.0)


@given(SECONDS, st.floats(1.0, 2.0), st.floats(0.0, 1.0))
def test_time_that_a_lower_clock_explains_is_not_the_caches(call_s: float, slowdown: float, part: float) -> None:
    aim_s = call_s * (1 + (slowdown - 1) * part)
    assert cache_factor(call_s, aim_s, slowdown=slowdown) == (1.0, 0.0)
    assert cache_factor(call_s, call_s / 2, slowdown=slowdown) == cache_factor(call_s, call_s / 2)


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (None, None), (0.0, 1.0), (1.0, 0.0)])
def test_an_unknown_time_changes_nothing(pair: tuple[float | None, float | None]) -> None:
    assert cache_factor(*pair) == (1.0, 0.0)


@given(SECONDS, st.lists(SECONDS, min_size=2, max_size=2))
def test_a_longer_time_in_the_program_never_lowers_the_energy(call_s: float, aims_s: list[float]) -> None:
    short, long = (cache_factor(call_s, aim_s)[0] for aim_s in sorted(aims_s))
    assert short <= long


@given(st.lists(st.floats(0.0, 10.0), max_size=30))
def test_time_is_shared_within_bounds_and_by_weight(times_s: list[float]) -> None:
    windows_s = share_time(times_s)
    assert len(windows_s) == len(times_s)
    assert all(MIN_WINDOW_S <= window_s <= MAX_WINDOW_S for window_s in windows_s)
    pairs = sorted(zip(times_s, windows_s, strict=True))
    assert [window_s for _, window_s in pairs] == sorted(windows_s)


def test_equal_operators_get_equal_time() -> None:
    assert share_time([2.0, 2.0]) == pytest.approx([MEAN_WINDOW_S] * 2)
    assert share_time([0.0, 0.0]) == [MIN_WINDOW_S] * 2
    assert not any(map(math.isnan, share_time([-1.0, 0.0])))


def test_a_short_time_makes_short_windows() -> None:
    assert share_time([2.0] * 10, 60.0) == share_time([2.0] * 10)
    assert share_time([2.0] * 10, 6.0) == pytest.approx([0.2] * 10)
    assert share_time([2.0] * 10, 1.0) == [MIN_WINDOW_S] * 10
