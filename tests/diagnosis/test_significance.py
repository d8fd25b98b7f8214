"""Which rows differ: by more than the threshold and noise, and only if the work is not the same."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis_builders import compared, comparison_of, costs, draw, record
from invented import Tensor, softmax, tanh
from joulediff.diagnosis.significance import (
    ALPHA,
    LEAST_SHARE,
    SPREAD,
    RowComparison,
    chance,
    compare_rows,
    correct,
    is_different,
    may_differ,
)
from joulediff.model.diff import Thresholds
from joulediff.model.run import Run
from run_builders import energy

X, W = draw(16, 32), draw(32, 32, seed=1)
LIMITS = Thresholds()
PROBABILITIES = st.lists(st.floats(0.0, 1.0), max_size=12)


def step() -> Tensor:
    return tanh(softmax(X @ W) @ W.t())


def row_named(rows: list[RowComparison], name: str) -> RowComparison:
    return next(row for row in rows if row.group.name == name)


def test_holm_multiplies_the_least_by_how_many_there_are() -> None:
    assert correct([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct([]) == []


@given(PROBABILITIES)
@settings(deadline=None, max_examples=60)
def test_a_corrected_probability_is_no_smaller_and_keeps_the_order(p_values: list[float]) -> None:
    found = correct(p_values)
    assert all(p <= q <= 1.0 for p, q in zip(p_values, found, strict=True))
    pairs = sorted(zip(p_values, found, strict=True))
    assert [q for _, q in pairs] == sorted(found)


@given(PROBABILITIES.filter(len))
@settings(deadline=None, max_examples=60)
def test_holm_is_never_harsher_than_bonferroni(p_values: list[float]) -> None:
    assert all(q <= min(1.0, p * len(p_values)) for p, q in zip(p_values, correct(p_values), strict=True))


@pytest.mark.parametrize(
    ("a_j", "b_j", "differs"),
    [
        (1.30, 1.00, True),
        (1.00, 1.30, True),
        (1.04, 1.00, False),  # below 5 %
        (1.06, 1.00, False),  # above, yet the spread between recordings is as large
    ],
)
def test_the_threshold_and_the_noise(a_j: float, b_j: float, differs: bool) -> None:
    a, b = energy(a_j, 0.01, "replayed"), energy(b_j, 0.01, "replayed")
    assert is_different(compared(a, b, p_value=chance(a, b)), LIMITS, 10.0) is differs


def test_a_larger_threshold_hides_more() -> None:
    row = compared(energy(1.3, 0.001), energy(1.0, 0.001))
    assert is_different(row, LIMITS, 10.0)
    assert not is_different(row, Thresholds(threshold=0.5), 10.0)


def test_overlapping_intervals_are_no_difference_whatever_the_probability() -> None:
    row = compared(energy(1.3, 0.4), energy(1.0, 0.01))
    assert may_differ(row, LIMITS, 10.0)
    assert not is_different(row, LIMITS, 10.0)


def test_a_small_part_of_the_step_is_no_finding() -> None:
    row = compared(energy(0.4, 0.001), energy(0.1, 0.001))
    assert is_different(row, LIMITS, 0.29 / LEAST_SHARE)
    assert not may_differ(row, LIMITS, 0.31 / LEAST_SHARE)


def test_may_differ_asks_no_probability() -> None:
    row = compared(energy(1.3, 0.3), energy(1.0, 0.3), p_value=0.6)
    assert may_differ(row, LIMITS, 10.0)
    assert not is_different(row, LIMITS, 10.0)


def test_a_row_that_was_not_tested_is_never_different() -> None:
    row = compared(energy(9.0), energy(1.0), p_value=None)
    assert not may_differ(row, LIMITS, 10.0)
    assert not is_different(row, LIMITS, 10.0)


def test_what_one_side_lacks_is_different_if_it_surely_costs_something() -> None:
    assert is_different(compared(energy(1.0, 0.1), None), LIMITS, 10.0)
    assert is_different(compared(None, energy(1.0, 0.1)), LIMITS, 10.0)
    assert not is_different(compared(energy(1.0, 1.2), None), LIMITS, 10.0)


def test_chance_is_one_for_equals_and_for_nothing() -> None:
    assert chance(energy(1.0), energy(1.0)) == pytest.approx(1.0)
    assert chance(None, None) == 1.0
    assert chance(energy(1.0, 0.0), None, spread=dict.fromkeys(SPREAD, 0.0)) == 0.0


def test_chance_counts_the_half_of_an_interval_that_looks_at_the_other() -> None:
    wide_above = replace(energy(1.0, 0.01), high=2.0)
    assert chance(wide_above, energy(1.5, 0.01)) > 0.05
    assert chance(wide_above, energy(0.5, 0.01)) < 1e-6


def test_an_estimate_needs_a_larger_gap() -> None:
    found = {source: chance(energy(1.2, 0.01, source), energy(1.0, 0.01, source)) for source in SPREAD}
    assert found["metered"] < found["replayed"] < found["attributed"] < found["estimated"]
    assert found["metered"] < ALPHA < found["estimated"]


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.0, 0.5))
@settings(deadline=None, max_examples=60)
def test_chance_does_not_depend_on_the_order(a_j: float, b_j: float, share: float) -> None:
    a, b = energy(a_j, share), energy(b_j, share / 2)
    assert math.isclose(chance(a, b), chance(b, a), abs_tol=1e-12)


@pytest.mark.parametrize("times", [1.2, 3.0, 100.0])
def test_the_same_work_with_the_same_kernels_is_never_different(times: float) -> None:
    a, b = record(step, costs({"mm": 1.0})), record(step, costs({"mm": times, "tanh": times}))
    rows = compare_rows(comparison_of(a, b))
    assert rows
    for row in rows:
        assert row.same
        assert not is_different(row, LIMITS, 1.0)
        assert not may_differ(row, LIMITS, 1.0)


def other_kernel(op: Any) -> str:
    return "slow_gemm" if op.name == "aten::mm" else f"{op.name}_kernel"


def test_other_kernels_are_other_work() -> None:
    a, b = record(step, costs({"mm": 3.0}), kernel=other_kernel), record(step, costs({"mm": 1.0}))
    rows = compare_rows(comparison_of(a, b))
    assert [row.group.name for row in rows if is_different(row, LIMITS, 10.0)] == ["mm"]
    assert row_named(rows, "mm").expensive == "a"


def test_another_launch_of_the_same_kernel_is_other_work() -> None:
    a, b = record(step, costs({"mm": 3.0})), record(step, costs({"mm": 1.0}))
    a = replace(a, kernels=tuple(replace(kernel, grid=(1, 1, 1)) for kernel in a.kernels))
    assert not row_named(compare_rows(comparison_of(a, b)), "mm").same


def test_other_forms_are_other_work() -> None:
    def transposed() -> Tensor:
        return tanh(X @ W_LAID)

    def plain() -> Tensor:
        return tanh(X @ W)

    rows = compare_rows(comparison_of(record(transposed, costs({"mm": 3.0})), record(plain, costs({"mm": 1.0}))))
    assert not row_named(rows, "mm").same
    assert row_named(rows, "tanh").same


W_LAID = W.t().contiguous().t()


@pytest.mark.parametrize(("device", "same"), [("cpu", False), ("cuda:0", True)])
def test_a_setting_distinguishes_host_work_because_it_has_no_kernel_names(device: str, same: bool) -> None:
    def run(*, on: bool) -> Run:
        table = {"torch.backends.mkldnn.enabled": on}
        return record(step, costs({}), device=device, settings=table)

    rows = compare_rows(comparison_of(run(on=True), run(on=False)))
    assert {row.same for row in rows} == {same}


def test_rows_without_energies_are_not_tested() -> None:
    a = replace(record(step, costs({})), measurement=None)
    b = replace(record(step, costs({}), kernel=other_kernel), measurement=None)
    assert {row.p_value for row in compare_rows(comparison_of(a, b))} == {None}


@pytest.mark.parametrize("blind", ["a", "b"])
def test_a_side_without_a_trace_is_unknown_and_not_free(blind: str) -> None:
    run = record(step, costs({}))
    dark = replace(run, kernels=(), replays=(), traced_s=None)
    rows = compare_rows(comparison_of(dark, run) if blind == "a" else comparison_of(run, dark))
    assert {may_differ(row, LIMITS, 1.0) for row in rows} == {False}


def test_work_on_an_unmetered_device_is_unknown_and_not_free() -> None:
    a, b = record(step, costs({"mm": 2.0})), record(step, costs({"mm": 2.0}))
    on_host = tuple(
        replace(kernel, device="cpu", kind="cpu") if "mm" in kernel.name else kernel for kernel in a.kernels
    )
    a = replace(a, kernels=on_host)  # the meter of the CPU is not there
    row = row_named(compare_rows(comparison_of(a, b)), "mm")
    assert row.energy_a is None
    assert not may_differ(row, LIMITS, 1.0)


def test_the_expensive_side_may_be_given() -> None:
    row = compared(energy(1.0), energy(2.0))
    assert row.expensive == "b"
    assert replace(row, side="a").expensive == "a"
    assert row.delta_j == pytest.approx(-1.0)


def test_what_a_compiled_module_runs_for_an_operator_is_unknown_and_not_free() -> None:
    a, b = record(step, costs({"mm": 2.0})), record(step, costs({"mm": 2.0}))
    kernels = tuple(replace(kernel, op=None, module="", join="module") for kernel in b.kernels)
    b = replace(b, kernels=kernels, ops=tuple(replace(op, compiled=True) for op in b.ops))
    assert {may_differ(row, LIMITS, 1.0) for row in compare_rows(comparison_of(a, b))} == {False}
