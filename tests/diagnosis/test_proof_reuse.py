"""Rows of the same two functions of a library, or of one setting, are proven once; waits join their function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import LiveProgram, apply, comparison_of, costs, draw, frames, record, sums
from invented import Tensor, call, exp, log, sigmoid, silu
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.host.idle_device import find_around, find_waits
from joulediff.model.diff import Diff
from joulediff.model.finding import Finding
from joulediff.model.run import Frame, Run, Wait

X, W = draw(16, 32), draw(32, 32, seed=1)
FILE = "fancy/modeling.py"
LIBRARY = ("forward", "eager", "fused", "careful", "run")


def eager(x: Tensor) -> Tensor:
    y = log(exp(x) + 1) @ W
    return y * sigmoid(y)


def fused(x: Tensor) -> Tensor:
    return silu(apply("softplus", lambda each: np.log(np.exp(each) + 1), x) @ W)


def forward(x: Tensor, way: Callable[[Tensor], Tensor]) -> Tensor:
    return way(x)


def slow() -> Tensor:
    return forward(X, eager)


def fast() -> Tensor:
    return forward(X, fused)


def in_library(run: Run, names: tuple[str, ...] = LIBRARY) -> Run:
    """Return a run in which some functions are no code of the user's own."""

    def moved(frame: Frame) -> Frame:
        return replace(frame, file=FILE, owner="fancy") if frame.function in names else frame

    return replace(run, frames=tuple(map(moved, run.frames)))


SOFTPLUS, SILU = "exp, add, log ↔ softplus", "sigmoid, mul ↔ silu"
SLOW = {"exp": 4.0, "sigmoid": 2.0}
DEAR, LEAN = in_library(record(slow, costs(SLOW))), in_library(record(fast, costs({})))


def compared(a: Run, b: Run, mine: LiveProgram, *, expensive: Any = "a") -> Diff:
    live = {"a": mine, "b": LiveProgram(b)} if expensive == "a" else {"a": LiveProgram(a), "b": mine}
    diff = diagnose(a, b, live=live)
    assert sums(diff) == pytest.approx([run.measurement.energy.joules for run in (a, b) if run.measurement])
    return diff


def rows_of(diff: Diff) -> dict[str, str | None]:
    return {row.name: row.finding for row in diff.rows if row.kind == "equal"}


def test_a_row_that_parts_to_the_same_functions_is_part_of_what_was_proven() -> None:
    program = LiveProgram(DEAR, {"calls": 1.0})
    diff = compared(DEAR, LEAN, program)
    (found,) = diff.findings
    assert (found.kind, found.cause.key, found.proof.confirmed) == ("api_misuse", "eager", True)
    assert found.cost.delta_j == pytest.approx(5.0 + 2.0)
    assert rows_of(diff) == {SOFTPLUS: "1", "mm": None, SILU: "1"}
    assert program.asked.count("calls") == 1, "the second row needs no trial of its own"
    assert found.proof.confirmation is not None
    (trial,) = found.proof.confirmation.trials
    assert trial.before is not None and trial.before.joules == pytest.approx(6.0), "the trial tells what was tried"


@pytest.mark.parametrize(("after", "saved_j"), [(1.0, 5.0), (1.05, 4.95)])
def test_the_saving_grows_with_the_row(after: float, saved_j: float) -> None:
    (found,) = compared(DEAR, LEAN, LiveProgram(DEAR, {"calls": after})).findings
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j is not None
    assert found.proof.confirmation.saved_j == pytest.approx(saved_j * 7.0 / 5.0)
    assert found.proof.confirmation.saved_share == pytest.approx(found.proof.confirmation.saved_j / 10.0)


def test_the_saving_is_capped_at_the_difference_of_the_steps() -> None:
    """The saving of a trial is capped at the extra energy of all rows that share its proof."""
    free = {"mm": 0.01}
    a, b = in_library(record(slow, costs({**SLOW, **free}))), in_library(record(fast, costs({"softplus": 4.0, **free})))
    (found,) = compared(a, b, LiveProgram(a, {"calls": 0.1})).findings
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j is not None
    assert found.proof.confirmation.saved_j == pytest.approx(found.cost.delta_j, rel=0.05)
    assert found.proof.confirmation.saved_share == pytest.approx(found.proof.confirmation.saved_j / 9.01)


def test_the_sides_may_be_exchanged() -> None:
    program = LiveProgram(DEAR, {"calls": 1.0})
    (found,) = compared(LEAN, DEAR, program, expensive="b").findings
    assert (found.expensive, found.cause.key, found.proof.confirmed) == ("b", "eager", True)
    assert found.cost.delta_j == pytest.approx(7.0)
    assert program.asked.count("calls") == 1


def each_alone(a: Run, b: Run, mine: LiveProgram) -> list[Finding]:
    """Return the findings of two rows that were tried separately."""
    diff = compared(a, b, mine)
    assert sorted(filter(None, rows_of(diff).values())) == ["1", "2"]
    assert mine.asked.count("calls") == 2
    return list(diff.findings)


def test_rows_of_the_users_own_code_are_each_proven() -> None:
    a, b = record(slow, costs(SLOW)), record(fast, costs({}))
    assert [found.proof.confirmed for found in each_alone(a, b, LiveProgram(a, {"calls": 1.0}))] == [True, True]


def test_what_was_not_proven_proves_nothing_for_others() -> None:
    assert [found.proof.confirmed for found in each_alone(DEAR, LEAN, LiveProgram(DEAR, {"calls": [30.0, 1.0]}))] == [
        False,
        True,
    ]


def test_a_row_of_the_same_functions_that_costs_the_other_side_more_is_the_price() -> None:
    lean = in_library(record(fast, costs({"silu": 6.0})))
    (found,) = compared(DEAR, lean, LiveProgram(DEAR, {"calls": 1.0})).findings
    assert (found.expensive, found.region) == ("a", SOFTPLUS)
    assert [(price.region, price.delta_j) for price in found.prices] == [(SILU, pytest.approx(3.0))]
    assert found.cost.delta_j == pytest.approx(5.0 - 3.0)
    assert found.proof.confirmation is not None
    assert found.proof.confirmation.saved_j == pytest.approx(5.0 - 3.0)


def test_a_row_that_goes_another_way_is_proven_by_itself() -> None:
    def careful(y: Tensor) -> Tensor:
        return y * sigmoid(y)

    def run(x: Tensor) -> Tensor:
        return log(exp(x) + 1) @ W

    def both() -> Tensor:
        return forward(forward(X, run), careful)

    a = in_library(record(both, costs(SLOW)))
    keys = [found.cause.key for found in each_alone(a, LEAN, LiveProgram(a, {"calls": 1.0}))]
    assert [str(key).rpartition(".")[2] for key in keys] == ["run", "careful"]


def test_a_function_that_both_sides_call_is_no_common_cause() -> None:
    """Two lines of a library call one function with different arguments."""

    def at_lines(run: Run, line: int) -> Run:
        path = ("mine.py", 3, "step"), (FILE, 5, "forward", "fancy"), (FILE, line, "layer", "fancy")
        ops = tuple(replace(op, frame=3) for op in run.ops)
        return replace(run, frames=frames(*path, (FILE, 9, "run", "fancy")), ops=ops)

    a, b = at_lines(DEAR, 20), at_lines(LEAN, 30)
    each_alone(a, b, LiveProgram(a, {"calls": 1.0}))


def test_an_operator_of_the_common_function_is_no_way() -> None:
    """One side calls a function, the other runs its operator directly: there are no two functions."""
    b = in_library(record(fast, costs({})))
    names = {"fused", "silu"}
    short = tuple(replace(op, frame=_outside(b, op.frame, names)) for op in b.ops)
    each_alone(DEAR, replace(b, ops=short), LiveProgram(DEAR, {"calls": 1.0}))


def _outside(run: Run, frame: int | None, names: set[str]) -> int | None:
    while frame is not None and run.frames[frame].function in names:
        frame = run.frames[frame].parent
    return frame


def test_a_row_that_is_not_sure_must_show_by_itself() -> None:
    lean = in_library(record(fast, costs({"silu": 2.8})))
    program = LiveProgram(DEAR, {"calls": 1.0})
    (found,) = compared(DEAR, lean, program).findings
    assert program.asked.count("calls") == 2
    assert found.cost.delta_j == pytest.approx(5.0 + 0.2)


WIDE, BIAS, BACK = draw(32, 64, seed=2), draw(16, 8, seed=3), draw(64, 8, seed=4)


def products() -> tuple[Tensor, Tensor]:
    wide = X @ WIDE
    return call("addmm", BIAS.array + wide.array @ BACK.array, BIAS, wide, BACK), X @ W


def under(value: int, joules: dict[str, float]) -> Run:
    """Return products under a setting, each in a module of its own and with its own kernel."""
    run = record(products, costs(joules), kernel=lambda op: f"{value}_{op.name}", settings={"torch.x": value})
    return replace(run, ops=tuple(replace(op, module=f"part_{'xyz'[at]}") for at, op in enumerate(run.ops)))


SET, UNSET = {"mm": 1.0, "addmm": 1.0}, {"mm": 4.0, "addmm": 3.0}


def test_a_setting_is_proven_once_for_each_operator() -> None:
    a, b = under(1, UNSET), under(2, SET)
    program = LiveProgram(a, {"torch.x = 2": 1.0})
    diff = compared(a, b, program)
    (found,) = diff.findings
    assert (found.cause.key, found.proof.confirmed) == ("torch.x", True)
    assert program.asked.count("torch.x = 2") == 2, "one product of each kind"
    assert found.cost.delta_j == pytest.approx(3.0 + 3.0 + 2.0)
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(8.0)
    assert [row.finding for row in diff.rows if row.kind == "equal"] == ["1"] * 3


def test_a_setting_that_explains_one_operator_is_not_proven_for_another() -> None:
    a, b = under(1, UNSET), under(2, SET)
    program = LiveProgram(a, {"torch.x = 2": [1.0, 30.0]})
    found = compared(a, b, program).findings
    assert program.asked.count("torch.x = 2") == 2
    assert [(each.cause.key, each.proof.confirmed) for each in found] == [("torch.x", True), (None, False)]


def test_a_setting_is_looked_for_with_every_product_until_it_is_proven() -> None:
    a, b = under(1, UNSET), under(2, SET)
    program = LiveProgram(a, {"torch.x = 2": 30.0})
    assert not any(found.proof.confirmed for found in compared(a, b, program).findings)
    assert program.asked.count("torch.x = 2") == 3


def waiting(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x @ W
        x = x * sigmoid(x)
        x.sum().item()
    return x


def silent(x: Tensor) -> Tensor:
    for _ in range(3):
        x = silu(x @ W)
    return x


def look(x: Tensor) -> None:
    x.sum().item()


def looking(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x @ W
        x = x * sigmoid(x)
        look(x)
    return x


def paced(way: Callable[[Tensor], Tensor], step_s: float, *, table: Any = None, **changes: Any) -> Run:
    """Return a run whose device idles at 100 W for most of its step."""

    def step() -> Tensor:
        return forward(X, way)

    each = costs({"mm": 0.2, "sigmoid": 0.3, "sum": 0.001, **(table or {})}, 0.05)
    run = record(step, each, rest_w=100.0, step_s=step_s, **changes)
    return in_library(run, (*LIBRARY, "waiting", "silent", "looking"))


QUIET = paced(silent, 10e-3)
OWN_J = 3 * 0.3


def test_waits_count_to_the_function_that_waits() -> None:
    a = paced(waiting, 40e-3)
    around = find_around(comparison_of(a, QUIET), 0.05)
    assert around is not None and around.delta_j > 2.5
    diff = compared(a, QUIET, LiveProgram(a, {"calls": 0.05}))
    (found,) = diff.findings
    assert (found.kind, found.cause.type, found.cause.key, found.proof.confirmed) == (
        "api_misuse",
        "call_path",
        "waiting",
        True,
    )
    assert found.cost.delta_j == pytest.approx(OWN_J + around.delta_j)
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(
        found.cost.delta_j
    )
    assert [row.finding for row in diff.rows if row.kind == "idle"] == [found.id]


def test_the_function_that_waits_may_be_the_second_sides() -> None:
    b = paced(waiting, 40e-3)
    (found,) = compared(QUIET, b, LiveProgram(b, {"calls": 0.05}), expensive="b").findings
    assert (found.expensive, found.cause.key) == ("b", "waiting")
    assert found.cost.delta_j > 3.0


def test_waits_of_another_function_are_a_finding_of_their_own() -> None:
    a = paced(looking, 40e-3)
    diff = compared(a, QUIET, LiveProgram(a, {"calls": 0.05}))
    assert [(found.kind, found.cause.key) for found in diff.findings] == [("host", "item"), ("api_misuse", "looking")]
    assert diff.findings[1].cost.delta_j == pytest.approx(OWN_J)
    assert [row.finding for row in diff.rows if row.kind == "idle"] == ["1"]


def test_what_costs_the_other_side_more_takes_no_waits() -> None:
    a = paced(waiting, 40e-3)
    found = diagnose(a, paced(silent, 10e-3, table={"silu": 0.6})).findings
    assert {(each.expensive, each.cause.type) for each in found} == {("a", "host"), ("b", "call_path")}
    other = next(each for each in found if each.expensive == "b")
    assert [place.function for place in other.work.path_a[-1:]] == ["waiting"], "it is the same function"


def test_a_setting_of_the_function_that_waits_is_no_reason_to_wait() -> None:
    a = paced(silent, 40e-3, table={"mm": 0.6}, kernel=lambda op: f"slow_{op.name}", settings={"torch.x": 1})
    products = [op.id for op in a.ops if op.name == "aten::mm"]
    a = replace(a, waits=tuple(Wait("cudaStreamSynchronize", 0.0, 1e-4, op, 0) for op in products))
    found = diagnose(a, replace(QUIET, settings={"torch.x": 2})).findings
    assert [(each.kind, each.cause.type) for each in found] == [("host", "host"), ("unknown", "kernel")]
    assert [place.function for place in found[1].work.path_a[-1:]] == ["silent"], "it is the same function"
    assert found[1].cost.delta_j == pytest.approx(3 * 0.4)


def test_a_line_waits_in_the_function_with_most_of_its_waits() -> None:
    """A line of the user's code calls several functions of a library that wait."""
    a = paced(waiting, 40e-3)
    path = ("mine.py", 3, "step"), (FILE, 5, "once", "fancy")
    often = replace(frames(*path)[1], line=9, function="often")
    reads = [op.id for op in a.ops if op.name == "aten::_local_scalar_dense"]
    ops = tuple(replace(op, frame=1 if op.id == reads[0] else 2) for op in a.ops)
    a = replace(a, frames=(*frames(*path), often), ops=ops)
    sides = comparison_of(a, QUIET)
    around = find_around(sides, 0.05)
    assert around is not None
    found = find_waits(sides, around)
    assert found is not None and (found.op, found.count_a) == (reads[1], 3)
