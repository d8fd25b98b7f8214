"""One cause is one finding: rows of two functions are joined, and extra work of the cheap side is the price."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from diagnosis_builders import costs, draw, frames, record, sums
from invented import Tensor, sigmoid, silu, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.model.run import Run

X, W = draw(16, 32), draw(32, 32, seed=1)
# The user's line calls a library, which goes on to one of two functions.
COMMON = (("mine.py", 3, "step"), ("lib/optim.py", 9, "update", "lib"))
ONE, MANY = ("lib/optim.py", 20, "one_by_one", "lib"), ("lib/optim.py", 40, "all_at_once", "lib")


def in_function(run: Run, function: tuple[str, int, str, str]) -> Run:
    """Return a run whose operators are all called by one function of the library."""
    return replace(run, frames=frames(*COMMON, function), ops=tuple(replace(op, frame=2) for op in run.ops))


def dear(step: Callable[[], Tensor], table: Mapping[str, float]) -> Run:
    return in_function(record(step, costs(table)), ONE)


def cheap(step: Callable[[], Tensor], table: Mapping[str, float]) -> Run:
    return in_function(record(step, costs(table)), MANY)


def gated() -> Tensor:
    y = X * sigmoid(X)
    z = tanh(y @ W)
    return z * sigmoid(z)


def fused() -> Tensor:
    return silu(tanh(silu(X) @ W))


def moved() -> Tensor:
    return (X * sigmoid(X)).t() @ X


def copied() -> Tensor:
    return silu(X).t().contiguous() @ X


def test_rows_of_two_functions_of_a_library_are_one_finding() -> None:
    slow = {"sigmoid": 2.0, "mul": 3.0, "mm": 4.0, "tanh": 1.0}
    diff = diagnose(dear(gated, slow), cheap(fused, {"silu": 2.0, "mm": 4.0, "tanh": 1.0}))
    (found,) = diff.findings
    assert found.cost.delta_j == pytest.approx(2 * 3.0)
    assert len([row for row in diff.rows if row.finding == "1"]) >= 1


def test_a_copy_that_the_cheaper_output_needs_is_its_price() -> None:
    a = record(moved, costs({"sigmoid": 4.0, "mul": 4.0, "mm": 6.0}))
    b = record(copied, costs({"silu": 2.0, "clone": 1.5, "mm": 6.0}))
    diff = diagnose(a, b)
    (found,) = diff.findings
    assert found.expensive == "a"
    assert [(price.region, price.delta_j) for price in found.prices] == [("clone", pytest.approx(1.5))]
    assert found.prices[0].location is not None and found.prices[0].location.function == "copied"
    assert found.cost.delta_j == pytest.approx(8.0 - 2.0 - 1.5)
    assert {row.name for row in diff.rows if row.finding == found.id} >= {"clone"}
    assert diff.explained_share == pytest.approx(1.0)
    run_a, run_b = (run.measurement for run in (a, b))
    assert run_a is not None and run_b is not None
    assert sums(diff) == pytest.approx((run_a.energy.joules, run_b.energy.joules))


def test_a_copy_before_a_cheaper_operator_is_its_price() -> None:
    def strided() -> Tensor:
        return tanh(X.t()) @ X

    def dense() -> Tensor:
        return tanh(X.t().contiguous()) @ X

    a = record(strided, costs({"tanh": 9.0}), kernel=lambda op: f"strided_{op.name}")
    (found,) = diagnose(a, record(dense, costs({"tanh": 2.0, "clone": 1.5}))).findings
    assert (found.expensive, [price.region for price in found.prices]) == ("a", ["clone"])
    assert found.cost.delta_j == pytest.approx(9.0 - 2.0 - 1.5)


def test_work_of_the_cheap_side_on_other_values_is_a_finding_of_its_own() -> None:
    def elsewhere() -> Tensor:
        return silu(X).t() @ X.contiguous()

    a = record(moved, costs({"sigmoid": 4.0, "mul": 4.0, "mm": 6.0}))
    b = record(elsewhere, costs({"silu": 2.0, "clone": 1.5, "mm": 6.0}))
    assert all(found.prices == () for found in diagnose(a, b).findings)
    assert {found.expensive for found in diagnose(a, b).findings} <= {"a", "b"}


def test_a_copy_by_code_that_both_programs_run_is_a_consequence() -> None:
    """The slow result has another layout, so that a reshape copies it."""

    def merge(x: Tensor, *, is_copied: bool) -> Tensor:
        return [x.t, lambda: x.t().contiguous()][is_copied]()

    def slow() -> Tensor:
        return merge(X * sigmoid(X), is_copied=True) @ X

    def fast() -> Tensor:
        return merge(silu(X), is_copied=False) @ X

    a = record(slow, costs({"sigmoid": 4.0, "mul": 4.0, "mm": 6.0, "clone": 1.5}))
    (found,) = diagnose(a, record(fast, costs({"silu": 2.0, "mm": 6.0}))).findings
    assert found.cost.delta_j == pytest.approx(8.0 - 2.0 + 1.5)


def test_a_copy_that_one_program_writes_is_a_finding_of_its_own() -> None:
    def written() -> Tensor:
        y = X * sigmoid(X)
        return y.t().contiguous() @ X

    def fast() -> Tensor:
        return silu(X).t() @ X

    a = record(written, costs({"sigmoid": 4.0, "mul": 4.0, "mm": 6.0, "clone": 1.5}))
    found = diagnose(a, record(fast, costs({"silu": 2.0, "mm": 6.0}))).findings
    assert [each.cause.key for each in found][1:] == ["contiguous"]
