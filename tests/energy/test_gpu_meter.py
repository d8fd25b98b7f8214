"""Loads on a simulated GPU: at rest, at the program's clock, and as near to it as possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import counter_domain
from joulediff.energy.gpu_clock import (
    CLOCK_SHARE,
    HALF_BUSY,
    HEADROOM,
    MAX_REST_SHARE,
    SEARCH_S,
    TRIES,
    cache_factor,
)
from joulediff.energy.load_energy import HEAT_C, REST_FRESH_S
from joulediff.measuring.repeater import WARM_UP_S
from joulediff.model.energy import around
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Replay
from replay_fakes import ADD, FULL_MHZ, LIMIT_W, MM, REST_W, FakeLoad, ReplaySetup, Work

WINDOW_S = 0.4
NOBODY = 2**30


def is_held(found: Replay, joules: float) -> bool:
    return abs(joules_of(found) - joules) <= half_of(found)


def joules_of(found: Replay) -> float:
    assert found.energy is not None
    return found.energy.joules


def half_of(found: Replay) -> float:
    assert found.energy is not None
    return found.energy.half_j


@settings(deadline=None, max_examples=30)
@given(power_w=st.floats(REST_W + 20, 1100.0), call_s=st.floats(2e-6, 2e-3))
def test_any_operator_of_a_program_below_the_limit(power_w: float, call_s: float) -> None:
    setup, work = ReplaySetup(), Work(power_w, call_s)
    found = setup.gpu_meter().measure(0, setup.load(work), WINDOW_S)
    assert is_held(found, work.energy_j())
    assert half_of(found) <= 0.1 * work.energy_j()
    assert found.clock_mhz == FULL_MHZ
    assert found.rest_w == pytest.approx(REST_W)
    assert found.note is None
    assert found.calls > 0


def test_heavy_work_rests_and_light_work_does_not() -> None:
    setup = ReplaySetup()
    heavy, light = setup.load(MM), setup.load(ADD)
    meter = setup.gpu_meter()
    meter.measure(0, heavy, WINDOW_S)
    meter.measure(0, light, WINDOW_S)
    share = heavy.rests_s[-1] / heavy.burst_s
    assert REST_W + (MM.power_w - REST_W) / (1 + share) == pytest.approx(HEADROOM * LIMIT_W, rel=0.06)
    assert light.rests_s[-1] == 0.0


def test_rest_is_measured_anew_when_it_may_have_moved() -> None:
    setup, rests = ReplaySetup(), list[FakeLoad]()

    def open_rest() -> FakeLoad:
        rests.append(FakeLoad(setup.card, None))
        return rests[-1]

    meter = setup.gpu_meter(open_rest=open_rest)
    meter.measure(0, setup.load(ADD), WINDOW_S)
    meter.measure(0, setup.load(ADD), WINDOW_S)
    assert len(rests) == 1
    setup.card.idle_w += 10.0
    setup.card.set(setup.card.idle_w)
    setup.clock.advance(REST_FRESH_S)
    assert meter.measure(0, setup.load(ADD), WINDOW_S).rest_w == pytest.approx(REST_W + 10.0)
    assert len(rests) == 2
    assert all(rest.closed for rest in rests)


def test_the_doubt_about_rest_is_in_every_call() -> None:
    setup = ReplaySetup()
    meter = setup.gpu_meter(rest_share=HALF_BUSY)
    sure = half_of(meter.measure(0, setup.load(ADD), WINDOW_S))
    rest, at_s = meter._rest or pytest.fail("rest was not measured")
    wide = around(rest.energy.joules, 0.1 * rest.energy.joules, "metered")
    assert wide is not None
    meter._rest = (replace(rest, energy=wide), at_s)
    found = meter.measure(0, setup.load(ADD), WINDOW_S)
    assert half_of(found) > sure
    assert half_of(found) >= 0.1 * REST_W * ADD.call_s * (1 + HALF_BUSY) * 0.99


def test_a_card_that_cannot_be_held_at_rest() -> None:
    setup = ReplaySetup()
    with pytest.raises(JoulediffError, match="cuda:0 cannot be held at rest"):
        setup.gpu_meter(open_rest=lambda: None).measure(0, setup.load(ADD), WINDOW_S)


# Programs that ran into the limit, down to the clock of the heaviest operator alone.
@settings(deadline=None, max_examples=30)
@given(share=st.floats(0.7, 0.97), power_w=st.floats(REST_W + 20, 1100.0), call_s=st.floats(2e-6, 1e-3))
def test_a_program_at_the_limit_is_matched_or_the_operator_is_marked(
    share: float, power_w: float, call_s: float
) -> None:
    setup, work = ReplaySetup(), Work(power_w, call_s, follows=0.8)
    program_mhz = share * FULL_MHZ
    found = setup.gpu_meter(clock_mhz=program_mhz, power_w=LIMIT_W).measure(0, setup.load(work), WINDOW_S)
    assert found.clock_mhz is not None
    matched = abs(found.clock_mhz / program_mhz - 1) <= CLOCK_SHARE
    assert matched == (found.note is None)
    assert is_held(found, work.energy_j(program_mhz))
    if power_w < LIMIT_W:
        assert not matched
        assert found.clock_mhz == pytest.approx(FULL_MHZ)
        assert found.note is not None
        assert f"{FULL_MHZ:.0f} MHz" in found.note and f"{program_mhz:.0f}" in found.note


@pytest.mark.parametrize("share", [0.85, 0.9, 0.95])
def test_a_heavy_operator_finds_the_programs_clock(share: float) -> None:
    setup = ReplaySetup()
    found = setup.gpu_meter(clock_mhz=share * FULL_MHZ, power_w=LIMIT_W).measure(0, setup.load(MM), WINDOW_S)
    assert found.clock_mhz == pytest.approx(share * FULL_MHZ, rel=0.015)
    assert joules_of(found) == pytest.approx(MM.energy_j(share * FULL_MHZ), rel=0.01)


def test_the_search_for_a_clock_ends() -> None:
    setup = ReplaySetup()
    load = setup.load(MM)
    setup.gpu_meter(clock_mhz=0.5 * FULL_MHZ, power_w=LIMIT_W).measure(0, load, WINDOW_S)
    assert len(set(load.rests_s)) <= 1 + TRIES


@pytest.mark.parametrize(("power_w", "looks"), [(0.6 * LIMIT_W, 0), (0.95 * LIMIT_W, 1)])
def test_no_clock_search_for_a_load_below_the_power_limit(power_w: float, looks: int) -> None:
    spent_s, work = [], Work(power_w, 1e-4)
    for share in (1.0, 0.9):
        setup = ReplaySetup()
        setup.gpu_meter(clock_mhz=share * FULL_MHZ, power_w=LIMIT_W).measure(0, setup.load(work), WINDOW_S)
        spent_s.append(setup.clock.now())
    # At most one look more, at the pace without rests; its window is then the shorter one.
    assert spent_s[1] - spent_s[0] <= looks * (WARM_UP_S + SEARCH_S) + 0.05


def test_a_search_that_begins_too_slow_goes_back_up() -> None:
    setup = ReplaySetup()
    # The program drew more than the limit says, so that the first try is slower than it was.
    found = setup.gpu_meter(clock_mhz=0.96 * FULL_MHZ, power_w=900.0).measure(0, setup.load(MM), WINDOW_S)
    assert found.clock_mhz == pytest.approx(0.96 * FULL_MHZ, rel=0.03)
    assert is_held(found, MM.energy_j(0.96 * FULL_MHZ))


@pytest.mark.parametrize("work", [MM, ADD])
def test_a_pace_that_is_forced(work: Work) -> None:
    setup = ReplaySetup()
    load = setup.load(work)
    found = setup.gpu_meter(rest_share=0.0).measure(0, load, WINDOW_S)
    assert set(load.rests_s) == {0.0}
    assert found.clock_mhz is not None
    assert is_held(found, work.energy_j(found.clock_mhz))  # as measured there, nothing is corrected
    if work is MM:
        assert found.clock_mhz < 0.85 * FULL_MHZ
        assert f"the program ran at {FULL_MHZ:.0f} MHz" in (found.note or "")
    else:
        assert found.note is None


@pytest.mark.parametrize("rest_share", [0.0, 0.5, 1.0, MAX_REST_SHARE])
def test_the_energy_does_not_depend_on_the_pace(rest_share: float) -> None:
    setup = ReplaySetup()
    found = setup.gpu_meter(rest_share=rest_share).measure(0, setup.load(ADD), WINDOW_S)
    assert joules_of(found) == pytest.approx(ADD.energy_j(), rel=0.01)


def test_without_a_known_limit_half_of_the_time_is_busy() -> None:
    setup = ReplaySetup()
    load = setup.load(MM)
    found = setup.gpu_meter(limit_w=None).measure(0, load, WINDOW_S)
    assert set(load.rests_s) == {HALF_BUSY * load.burst_s}
    assert is_held(found, MM.energy_j())


@pytest.mark.parametrize("facts", [{"clock_mhz": None}, {"power_w": None}, {"clock_mhz": None, "limit_w": None}])
@pytest.mark.parametrize("tells_clock", [True, False])
def test_without_known_clocks_nothing_is_corrected_or_marked(facts: dict[str, Any], tells_clock: bool) -> None:
    setup = ReplaySetup(tells_clock=tells_clock)
    found = setup.gpu_meter(**facts).measure(0, setup.load(MM), WINDOW_S)
    assert is_held(found, MM.energy_j())
    assert found.clock_mhz == (FULL_MHZ if tells_clock else None)
    assert found.note is None


def test_a_clock_that_is_no_longer_reported_ends_the_search() -> None:
    setup, told = ReplaySetup(), iter([{"gpu0": FULL_MHZ}] * 20)
    setup.meter.clocks = lambda: next(told, {})  # type: ignore[method-assign]
    found = setup.gpu_meter(clock_mhz=0.9 * FULL_MHZ, power_w=LIMIT_W).measure(0, setup.load(MM), WINDOW_S)
    assert found.clock_mhz is None
    assert is_held(found, MM.energy_j())


@pytest.mark.parametrize("work", [ADD, MM])
def test_a_counter_is_too_slow_to_look_so_half_of_the_time_is_busy(work: Work) -> None:
    setup = ReplaySetup(counter_domain(0.1), poll_s=0.01)
    load = setup.load(work)
    found = setup.gpu_meter().measure(0, load, WINDOW_S)
    assert set(load.rests_s) == {load.burst_s}
    assert is_held(found, work.energy_j())
    assert found.note is None


@pytest.mark.parametrize(("program_c", "doubted"), [(None, False), (60.0 - HEAT_C, False), (59.0 - HEAT_C, True)])
def test_a_card_that_is_much_warmer_than_in_the_program(program_c: float | None, doubted: bool) -> None:
    setup = ReplaySetup()
    setup.card.temperature_c = 60.0
    found = setup.gpu_meter(temperature_c=program_c).measure(0, setup.load(ADD), WINDOW_S)
    assert ("60 °C" in (found.note or "")) == doubted


def test_time_that_the_programs_clock_explains_is_not_the_caches() -> None:
    setup, program_mhz = ReplaySetup(), 0.85 * FULL_MHZ
    meter = setup.gpu_meter(clock_mhz=program_mhz, power_w=LIMIT_W, full_mhz=FULL_MHZ)
    found = meter.measure(0, setup.load(MM, aim_s=MM.seconds(program_mhz)), WINDOW_S)
    assert joules_of(found) == pytest.approx(MM.energy_j(program_mhz), rel=0.01)


def test_another_process_that_stays_is_a_warning_after_a_second_measurement() -> None:
    setup = ReplaySetup()
    setup.card.others = (NOBODY,)
    before = setup.meter.looks
    found = setup.gpu_meter().measure(0, setup.load(ADD), WINDOW_S)
    assert str(NOBODY) in (found.note or "")
    # Before and after: once at rest, twice at work.
    assert setup.meter.looks - before == 6


def test_another_process_that_ends_is_no_warning() -> None:
    setup = ReplaySetup()
    meter = setup.gpu_meter()
    meter.measure(0, setup.load(ADD), WINDOW_S)
    found, states = setup.load(ADD), setup.meter.states

    def come_and_go() -> list[Any]:
        setup.card.others = (NOBODY,) if setup.meter.looks == 1 else ()
        return states()

    setup.meter.looks = 1
    setup.meter.states = come_and_go  # type: ignore[method-assign]
    assert meter.measure(0, found, WINDOW_S).note is None
    assert setup.meter.looks == 5


@settings(deadline=None, max_examples=20)
@given(ratio=st.floats(0.5, 2.0))
def test_another_cache_in_the_program_moves_and_widens_the_energy(ratio: float) -> None:
    setup = ReplaySetup()
    found = setup.gpu_meter().measure(0, setup.load(ADD, aim_s=ratio * ADD.call_s), WINDOW_S)
    factor, doubt = cache_factor(ADD.call_s, ratio * ADD.call_s)
    assert joules_of(found) == pytest.approx(factor * ADD.energy_j(), rel=0.01)
    assert half_of(found) >= 0.99 * doubt * ADD.energy_j()
