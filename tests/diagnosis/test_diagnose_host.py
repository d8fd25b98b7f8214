"""Waste around the operators: waits for the device, and many operators where the other side has few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import LiveProgram, apply, comparison_of, costs, draw, record, sums
from invented import Tensor, call, exp, gelu, gelu_decomposed, log_softmax, softmax, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.host.idle_device import Around, find_around, find_launches, find_waits, part_energy
from joulediff.diagnosis.significance import compare_rows
from joulediff.frameworks.jobs import Job, JobCost
from joulediff.model.finding import Finding
from joulediff.model.run import Run, Wait
from run_builders import energy, measurement

X, W = draw(16, 32), draw(32, 32, seed=1)
OTHER = draw(16, 32, seed=2)
REST_W = 100.0
# What the operators of a solver cost more than the other one's.
OWN_J = 0.9 - 0.2


def largest(x: Tensor) -> Tensor:
    return apply("max", np.max, apply("abs", np.abs, x))


def looking() -> tuple[Tensor, float]:
    x, total = X, 0.0
    for _ in range(5):
        x = tanh(x @ W)
        total += largest(x).item()
    return x, total


def later() -> tuple[Tensor, float]:
    x, totals = X, []
    for _ in range(5):
        x = tanh(x @ W)
        totals.append(largest(x))
    return x, call("stack", np.stack([each.array for each in totals]), *totals).sum().item()


def by_hand() -> Tensor:
    return gelu_decomposed(X @ W)


def built_in() -> Tensor:
    return gelu(X @ W)


def by_logarithm() -> Tensor:
    return exp(log_softmax(X @ W))


def by_softmax() -> Tensor:
    return softmax(X @ W)


def run_of(step: Callable[[], Any], *, step_s: float, each_j: float = 0.05, **changes: Any) -> Run:
    """Return a run whose device idles at 100 W for most of its step."""
    table = costs({"mm": 0.2, **changes.pop("table", {})}, each_j)
    return record(step, table, rest_w=REST_W, step_s=step_s, **changes)


def waiting_pair() -> tuple[Run, Run]:
    return run_of(looking, step_s=40e-3), run_of(later, step_s=10e-3, table={"stack": 0.001, "sum": 0.001})


def around_of(a: Run, b: Run) -> tuple[Comparison, Around]:
    sides = comparison_of(a, b)
    found = find_around(sides, 0.05)
    assert found is not None
    return sides, found


def test_an_idle_device_is_energy_around_the_operators() -> None:
    _, found = around_of(*waiting_pair())
    assert found.expensive == "a"
    assert found.delta_j == pytest.approx(3.0, rel=0.05)
    _, found = around_of(*reversed(waiting_pair()))
    assert found.expensive == "b"


def test_little_idle_time_more_is_nothing() -> None:
    a, b = run_of(looking, step_s=10.1e-3), run_of(later, step_s=10e-3)
    assert find_around(comparison_of(a, b), 0.05) is None


def test_without_books_there_is_nothing_around() -> None:
    a, b = (replace(run, measurement=None) for run in waiting_pair())
    assert find_around(comparison_of(a, b), 0.05) is None
    a, b = waiting_pair()
    assert find_around(comparison_of(a, replace(b, kernels=(), replays=(), traced_s=None)), 0.05) is None


def test_parts_of_domains_that_do_not_count_are_left_out() -> None:
    accounts = comparison_of(*waiting_pair()).costs["a"].books.accounts
    assert part_energy(accounts, "idle") is not None
    assert part_energy(tuple(replace(each, counted=False) for each in accounts), "idle") is None


def test_numbers_that_are_read_are_waits() -> None:
    sides, around = around_of(*waiting_pair())
    found = find_waits(sides, around)
    assert found is not None and (found.count_a, found.count_b) == (5, 1)
    assert found.frame is not None and found.frame.function == "looking"
    assert sides.a.ops[found.op].name == "aten::_local_scalar_dense"


def test_as_many_waits_are_no_habit() -> None:
    sides, around = around_of(run_of(later, step_s=40e-3), run_of(later, step_s=10e-3))
    assert find_waits(sides, around) is None


def test_a_read_of_a_number_on_the_host_is_no_wait() -> None:
    a, b = waiting_pair()
    a = replace(a, values=tuple(replace(value, device="cpu") for value in a.values))
    assert (
        find_waits(Comparison(a, b, comparison_of(*waiting_pair()).regions), Around("a", energy(4.0), energy(1.0)))
        is None
    )


def test_waits_that_the_trace_saw_count_by_the_operator_that_waits() -> None:
    a, b = run_of(by_hand, step_s=40e-3), run_of(built_in, step_s=10e-3)
    a = replace(a, waits=tuple(Wait("cudaStreamSynchronize", 0.0, 1e-4, op, 0) for op in (0, 1, 1, None)))
    sides, around = around_of(a, b)
    found = find_waits(sides, around)
    assert found is not None and (found.count_a, found.count_b) == (2, 0)


def only(a: Run, b: Run, mine: LiveProgram | None = None) -> Finding:
    diff = diagnose(a, b, live={} if mine is None else {"a": mine, "b": LiveProgram(b)})
    (found,) = diff.findings
    assert [row.finding for row in diff.rows if row.kind == "idle"] == [found.id]
    assert sums(diff) == pytest.approx([run.measurement.energy.joules for run in (a, b) if run.measurement])
    return found


def test_a_program_that_waits_in_every_round() -> None:
    found = only(*waiting_pair())
    assert (found.kind, found.cause.type, found.cause.key) == ("host", "host", "item")
    assert (found.cause.value_a, found.cause.value_b) == (5, 1)
    assert not found.proof.confirmed and found.proof.confirmation is None
    assert found.cause.location_a is not None
    assert found.cause.location_a.text == "total += largest(x).item()"
    assert "Do not wait" in found.suggestion and "total += largest(x).item()" in found.suggestion


def test_the_step_without_its_waits_is_the_proof() -> None:
    a, b = waiting_pair()
    assert b.measurement is not None and a.measurement is not None
    program = LiveProgram(a, without_sync=measurement(energy=b.measurement.energy))
    found = only(a, b, program)
    saved_j = a.measurement.energy.joules - b.measurement.energy.joules
    assert found.proof.confirmed and found.proof.confirmation is not None
    assert found.proof.confirmation.saved_j == pytest.approx(saved_j)


def test_a_step_that_costs_the_same_without_its_waits_is_no_proof() -> None:
    a, b = waiting_pair()
    assert a.measurement is not None
    found = only(a, b, LiveProgram(a, without_sync=a.measurement))
    assert not found.proof.confirmed and found.proof.confirmation is not None
    assert found.proof.confirmation.saved_j is None
    assert found.proof.confirmation.trials[0].note == "the energy stays as it is"


@pytest.mark.parametrize(
    ("difference", "note"), [(None, "the outputs could not be compared"), (0.5, "the outputs change with it")]
)
def test_a_step_without_its_waits_and_with_other_outputs_is_no_proof(difference: float | None, note: str) -> None:
    a, b = waiting_pair()
    assert b.measurement is not None
    program = LiveProgram(a, without_sync=measurement(energy=b.measurement.energy), difference=difference)
    found = only(a, b, program)
    assert found.proof.word == "observed" and found.proof.confirmation is not None
    assert found.proof.confirmation.trials[0].note == note


def test_a_wait_that_cannot_be_left_out_says_so() -> None:
    a, b = waiting_pair()
    found = only(a, b, LiveProgram(a))
    assert not found.proof.confirmed and found.proof.confirmation is not None
    assert found.proof.confirmation.trials[0].note == "no wait there can be left out"


def launching_pair(hand_j: float = 0.1) -> tuple[Run, Run]:
    """Return GELU in many operators that together cost about as much as one, on a device that idles between them."""
    gelu_j = {"gelu": 0.8}
    return run_of(by_hand, step_s=40e-3, each_j=hand_j), run_of(built_in, step_s=10e-3, table=gelu_j)


def solving_pair() -> tuple[Run, Run]:
    """Return a program with an operator that waits for the device repeatedly, and one without it."""
    a = run_of(by_logarithm, step_s=40e-3, table={"_log_softmax": 0.8, "exp": 0.1})
    b = run_of(by_softmax, step_s=10e-3, table={"_softmax": 0.2})
    at = next(op.id for op in a.ops if op.name == "aten::_log_softmax")
    waits = tuple(Wait("cudaStreamSynchronize", number * 1e-3, 1e-4, at, 0) for number in range(9))
    return replace(a, waits=waits), b


def test_the_row_with_most_of_the_operators() -> None:
    sides, around = around_of(*launching_pair())
    rows = compare_rows(sides)
    at = find_launches(sides, rows, around)
    assert at is not None and rows[at].group.name.endswith("gelu")
    assert find_launches(sides, rows, replace(around, expensive="b")) is None


def test_few_operators_more_are_no_matter_of_launching() -> None:
    a, b = run_of(built_in, step_s=40e-3), run_of(built_in, step_s=10e-3)
    sides, around = around_of(a, b)
    assert find_launches(sides, compare_rows(sides), around) is None
    assert diagnose(a, b).findings == ()


def test_many_launches_are_a_finding_if_the_trial_shows_them() -> None:
    a, b = launching_pair()
    found = only(a, b, LiveProgram(a, {"own": 3.0, "calls": 0.8}))
    assert (found.kind, found.expensive, found.proof.confirmed) == ("api_misuse", "a", True)
    assert any("more operators are more work for the host" in text for text in found.cause.evidence)
    assert found.cost.delta_j == pytest.approx(3.0, rel=0.1)


def test_launches_are_measured_at_the_rate_of_the_host() -> None:
    """A graph of all operators would have no gaps between them."""

    class Pacing(LiveProgram):
        def measure_job(self, job: Job, *, window_s: float, as_other: bool = False) -> JobCost:
            assert job.paced
            return super().measure_job(job, window_s=window_s, as_other=as_other)

    a, b = launching_pair()
    diff = diagnose(a, b, live={"a": Pacing(a, {"own": 3.0, "calls": 0.8}), "b": Pacing(b)})
    assert [found.proof.confirmed for found in diff.findings] == [True]


def test_an_operator_that_has_the_device_wait_takes_the_energy_around_it() -> None:
    """A solver that works on the host: its kernels cost little, and its trial shows the whole cost."""
    a, b = solving_pair()
    _, around = around_of(a, b)
    found = only(a, b, LiveProgram(a, {"own": 3.5, "calls": 0.2}))
    assert found.proof.confirmed and any("while the device waits" in text for text in found.cause.evidence)
    assert found.cost.delta_j == pytest.approx(OWN_J + around.delta_j)
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(
        found.cost.delta_j
    )


def only_its_own(a: Run, b: Run, mine: LiveProgram) -> None:
    """Assert that the only finding is about operators, and that no finding holds the energy of the idle device."""
    diff = diagnose(a, b, live={"a": mine, "b": LiveProgram(b)})
    assert [found.cost.delta_j for found in diff.findings] == pytest.approx([OWN_J])
    assert [row.finding for row in diff.rows if row.kind == "idle"] == [None]


@pytest.mark.parametrize(("own_j", "calls_j"), [(0.9, 0.2), (3.5, 3.4)])
def test_a_trial_that_saves_no_more_than_the_kernels_takes_nothing_around_them(own_j: float, calls_j: float) -> None:
    a, b = solving_pair()
    only_its_own(a, b, LiveProgram(a, {"own": own_j, "calls": calls_j}))


def test_an_operator_that_does_not_wait_takes_nothing_around_it() -> None:
    a, b = solving_pair()
    only_its_own(replace(a, waits=()), b, LiveProgram(a, {"own": 3.5, "calls": 0.2}))


def test_many_launches_are_no_finding_offline_or_where_they_do_not_show() -> None:
    a, b = launching_pair()
    assert diagnose(a, b).findings == ()
    diff = diagnose(a, b, live={"a": LiveProgram(a, {"own": 0.8}), "b": LiveProgram(b)})
    assert diff.findings == ()


def test_a_row_that_is_a_finding_anyway_takes_the_energy_around_it() -> None:
    a, b = launching_pair(hand_j=0.4)
    found = only(a, b)
    own_j = 8 * 0.4 - 0.8
    assert found.cost.delta_j == pytest.approx(own_j + 3.0, rel=0.1)


def test_work_that_one_side_repeats_takes_the_energy_to_launch_it() -> None:
    """The tables are computed for each layer and for all of them: the other times have no counterpart."""

    def layers(tables: Callable[[], Tensor]) -> Tensor:
        x = X
        for _ in range(4):
            x = tanh(x @ W) * tables()
        return x

    def compute() -> Tensor:
        return exp(tanh(exp(tanh(OTHER))))

    kept: list[Tensor] = []

    def keep() -> Tensor:
        if not kept:
            kept.append(compute())
        return kept[0]

    found = only(run_of(lambda: layers(compute), step_s=40e-3, each_j=0.3), run_of(lambda: layers(keep), step_s=10e-3))
    assert found.cause.type == "repetition"
    assert any("more operators are more work for the host" in text for text in found.cause.evidence)
