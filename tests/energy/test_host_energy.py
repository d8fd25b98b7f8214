"""The energy of a step by functions and lines: the parts sum to the step, and noise of the samples is in intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.energy.host_energy import HostPart, host_energy, host_parts
from joulediff.energy.host_time import GARBAGE_COLLECTION
from joulediff.model.run import Run
from plain_builders import plain_run

STEP, PARSE, SORT = ("build.<locals>.step", 9), ("parse", 3), ("Lib.sort", 0)


def by_name(run: Run) -> dict[str, HostPart]:
    return {part.function: part for part in host_parts(run)}


def joules(part: HostPart) -> float:
    assert part.energy is not None
    return part.energy.joules


def test_time_in_a_library_counts_to_the_function_that_calls_it() -> None:
    run = plain_run("a", {(STEP,): 2.0, (STEP, PARSE): 3.0, (STEP, PARSE, SORT): 5.0})
    parts = by_name(run)
    assert joules(parts["parse"]) == pytest.approx(0.8)
    assert joules(parts["build.<locals>.step"]) == pytest.approx(0.2)
    assert (parts["parse"].calls, parts["build.<locals>.step"].calls) == ("lib.Lib.sort", "")
    assert parts["build.<locals>.step"].is_step and not parts["parse"].is_step
    assert parts["parse"].energy is not None and parts["parse"].energy.source == "attributed"


@given(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=8), st.floats(0.0, 1.0))
def test_the_parts_never_exceed_the_step(times_ms: list[float], wait: float) -> None:
    paths = {((f"f{at}", at + 1),): time_ms for at, time_ms in enumerate(times_ms)}
    run = plain_run("a", paths, wait={next(iter(paths)): wait}, rest_w=20.0)
    for parts in (host_parts(run), host_parts(run, "line")):
        total_j = sum(map(joules, parts))
        assert total_j <= 1.0 + 1e-9
        sampled = sum(times_ms) / 10
        assert total_j == pytest.approx(min(1.0, sampled), rel=1e-6)


def test_a_part_that_waits_uses_only_the_power_of_the_resting_machine() -> None:
    times = {(("sleeps", 1),): 5.0, (("works", 2),): 5.0}
    waiting = {(("sleeps", 1),): 1.0}
    parts = by_name(plain_run("a", times, wait=waiting, rest_w=20.0))  # 0.2 of 1.0 J
    assert joules(parts["sleeps"]) == pytest.approx(0.1)
    assert joules(parts["works"]) == pytest.approx(0.9)
    assert joules(by_name(plain_run("a", times, wait=waiting))["sleeps"]) == 0.0


def test_with_threads_at_work_time_splits_the_energy() -> None:
    times = {(("waits_for_pool", 1),): 5.0, (("works", 2),): 5.0}
    run = plain_run("a", times, wait={(("waits_for_pool", 1),): 1.0})
    assert run.measurement is not None
    run = replace(run, measurement=replace(run.measurement, cpu_s=0.03))
    assert joules(by_name(run)["waits_for_pool"]) == pytest.approx(0.5)


def test_few_samples_have_a_wide_interval() -> None:
    parts = by_name(plain_run("a", {(("rare", 1),): 0.04, (("often", 2),): 9.96}))
    rare, often = (parts[name].energy for name in ("rare", "often"))
    assert rare is not None and often is not None
    assert rare.half_width_share == pytest.approx(1.96 / 2, rel=0.05)  # four samples
    assert often.half_width_share == pytest.approx(0.0107, rel=0.05)  # 1 % of the meter, and 0.4 % of samples


def test_code_inside_of_a_function_counts_to_it() -> None:
    outer, lazy = ("parse", 3), ("parse.<locals>.<genexpr>", 4)
    parts = by_name(plain_run("a", {(STEP, outer, lazy): 4.0, (STEP, outer): 1.0}))
    assert parts.keys() == {"parse"}
    assert parts["parse"].time_s == pytest.approx(5e-3)


def test_a_lambda_that_is_the_step_keeps_its_name() -> None:
    assert by_name(plain_run("a", {(("build.<locals>.<lambda>", 2),): 1.0})).keys() == {"build.<locals>.<lambda>"}


def test_garbage_collection_is_a_part_of_its_own() -> None:
    path = (STEP, PARSE)
    parts = by_name(plain_run("a", {path: 3.0}, gc=[path]))
    assert parts.keys() == {GARBAGE_COLLECTION}


def test_lines_of_one_function_are_apart() -> None:
    times = {(("parse", 3),): 3.0, (("parse", 4),): 1.0}
    lines = host_parts(plain_run("a", times), "line")
    assert [(line.frame.line if line.frame else 0, round(joules(line), 3)) for line in lines] == [(3, 0.3), (4, 0.1)]


def test_a_run_that_was_not_sampled_has_no_parts() -> None:
    run = plain_run("a", {(STEP,): 1.0})
    assert host_parts(replace(run, host_samples=())) == ()
    assert host_parts(replace(run, sampling=None)) == ()
    unmetered = replace(run, measurement=None)
    assert host_energy(unmetered) is None
    assert [part.energy for part in host_parts(unmetered)] == [None]
