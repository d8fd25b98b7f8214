"""Work that cannot be run again: confirmed by the other program if nothing else differs, and never otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import LiveProgram, apply, costs, draw, record
from invented import Tensor, call, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.only_difference import CHANGE
from joulediff.model.diff import Diff
from joulediff.model.finding import Finding
from joulediff.model.run import Op, Run
from run_builders import energy

X, W = draw(16, 32), draw(32, 32, seed=1)
COST = costs({"clone": 6.0, "zeros": 0.01})
COLLECTIVE = "c10d::allreduce_"
COLLECTIVES = {"aten::clone": COLLECTIVE, "aten::neg": "c10d::broadcast_"}
# Steps with nothing but their operators, and a little after these.
LONG_S, SHORT_S = 1e-3, 0.4e-3


def reduced() -> Tensor:
    """Stands for a collective to which no other process adds anything: it returns its input."""
    return tanh(X.clone()) @ W


def plain() -> Tensor:
    return tanh(X) @ W


def reduced_and_counted() -> Tensor:
    call("zeros", np.zeros(1))
    return tanh(X.clone()) @ W


def reduced_before_an_equal_call() -> Tensor:
    return tanh(X.clone()) @ W.clone()


def plain_before_an_equal_call() -> Tensor:
    return tanh(X) @ W.clone()


def reduced_and_looked_at() -> Tensor:
    return tanh(X.clone().view(512).view(16, 32)) @ W


def reduced_and_read() -> Tensor:
    call("select", W.array[0, 0], W, is_view=True).item()
    return tanh(X.clone()) @ W


def reduced_beside_nan() -> Tensor:
    return tanh(X.clone()) @ W + 0.0 * apply("nan_to_num", np.nan_to_num, X @ W * float("nan"))


def reduced_and_sent() -> Tensor:
    return tanh(X.clone()) @ -W


def sent() -> Tensor:
    return tanh(X) @ -W


def with_collectives(run: Run) -> Run:
    """Return a run whose copies are collectives, which were not replayed."""
    here = {op.id for op in run.ops if op.name in COLLECTIVES}
    return replace(
        run,
        ops=tuple(replace(op, name=COLLECTIVES.get(op.name, op.name)) for op in run.ops),
        replays=tuple(
            replace(each, energy_j=None, low_j=None, high_j=None, note="a collective waits for other processes")
            if each.op in here
            else each
            for each in run.replays
        ),
    )


def waiting(step: Callable[[], Any] = reduced, **changes: Any) -> Run:
    return with_collectives(record(step, COST, **{"step_s": LONG_S, **changes}))


def lean(step: Callable[[], Any] = plain, **changes: Any) -> Run:
    return with_collectives(record(step, COST, **{"step_s": SHORT_S, **changes}))


def diff_of(a: Run, b: Run, *, interleaved: bool = True, **answers: Any) -> Diff:
    return diagnose(a, b, live={"a": LiveProgram(a, answers), "b": LiveProgram(b)}, interleaved=interleaved)


def on_collective(diff: Diff) -> list[Finding]:
    return [found for found in diff.findings if COLLECTIVE in (*found.work.ops_a, *found.work.ops_b)]


def assert_not_proven(diff: Diff) -> None:
    trials = [each for found in diff.findings if found.proof.confirmation for each in found.proof.confirmation.trials]
    assert not any(trial.change == CHANGE for trial in trials)
    assert not any(found.proof.confirmed for found in on_collective(diff))


def with_interval(run: Run, share: float) -> Run:
    assert run.measurement is not None and run.measurement.energy is not None
    found = energy(run.measurement.energy.joules, share, "metered")
    return replace(run, measurement=replace(run.measurement, energy=found))


def test_the_only_difference_is_proven_by_the_whole_steps() -> None:
    (found,) = diff_of(waiting(), lean()).findings
    assert (found.kind, found.expensive, found.cause.type, found.proof.confirmed) == (
        "redundant",
        "a",
        "redundancy",
        True,
    )
    assert found.proof.confirmation is not None
    (trial,) = found.proof.confirmation.trials
    assert trial.change == CHANGE and trial.explains and trial.of_step
    assert trial.note is not None and "measured in alternation" in trial.note
    assert trial.before is not None and trial.before.joules == pytest.approx(8.0)
    assert trial.after == trial.other and trial.after is not None and trial.after.joules == pytest.approx(2.0)
    assert found.proof.confirmation.saved_j == pytest.approx(6.0)
    assert found.proof.confirmation.saved_share == pytest.approx(0.75)
    assert found.cause.not_tried is None


def test_it_is_found_on_either_side() -> None:
    (found,) = diff_of(lean(), waiting()).findings
    assert found.expensive == "b" and found.proof.confirmed


def test_a_row_whose_own_energy_is_uncertain_is_found_by_the_whole_steps() -> None:
    a = waiting(share=0.4)
    (found,) = diff_of(a, lean(share=0.4)).findings
    assert found.proof.confirmed


def test_the_remaining_calls_of_the_same_kind_are_no_other_difference() -> None:
    (found,) = diff_of(waiting(reduced_before_an_equal_call), lean(plain_before_an_equal_call)).findings
    assert found.kind == "redundant" and found.proof.confirmed


def test_another_operator_that_costs_next_to_nothing_is_no_other_difference() -> None:
    (found,) = on_collective(diff_of(waiting(reduced_and_counted), lean()))
    assert found.proof.confirmed


def test_a_view_is_no_other_difference() -> None:
    (found,) = on_collective(diff_of(waiting(reduced_and_looked_at), lean()))
    assert found.proof.confirmed


def test_not_beside_a_number_that_the_host_waits_for() -> None:
    cost = costs({"clone": 6.0, "_local_scalar_dense": 0.001})
    assert_not_proven(diff_of(with_collectives(record(reduced_and_read, cost, step_s=LONG_S)), lean()))


def test_not_beside_what_has_no_counterpart() -> None:
    assert_not_proven(diff_of(waiting(reduced_beside_nan, step_s=2e-3), lean()))


def test_not_beside_another_collective_that_both_have() -> None:
    """The work of other processes in a collective is not recorded."""
    assert_not_proven(diff_of(waiting(reduced_and_sent), lean(sent)))


@pytest.mark.parametrize("joules", [0.2, 1.0, 3.0])
def test_not_beside_another_operator_that_costs_something(joules: float) -> None:
    a = with_collectives(record(reduced_and_counted, costs({"clone": 6.0, "zeros": joules}), step_s=LONG_S))
    assert_not_proven(diff_of(a, lean()))


@pytest.mark.parametrize("joules", [1.0, 1.02, 4.0], ids=["at the same cost", "about", "dearer"])
def test_not_beside_another_kernel(joules: float) -> None:
    def kernel(op: Op) -> str:
        return "slow" if op.name == "aten::mm" else f"{op.name}_kernel"

    a = with_collectives(record(reduced, costs({"clone": 6.0, "mm": joules}), kernel=kernel, step_s=LONG_S))
    assert_not_proven(diff_of(a, lean()))


def test_not_beside_another_setting() -> None:
    assert_not_proven(diff_of(waiting(settings={"torch.one": 1}), lean(settings={"torch.one": 2})))


def test_not_beside_work_without_an_operator() -> None:
    a = waiting()
    loose = replace(a.kernels[0], name="memset", op=None, join="none")
    assert_not_proven(diff_of(replace(a, kernels=(*a.kernels, loose)), lean()))


def test_not_where_time_is_lost_elsewhere() -> None:
    """The step begins with slow code that is no operator."""
    a = waiting(step_s=LONG_S + 50e-3)
    late = tuple(replace(kernel, start_s=kernel.start_s + 50e-3) for kernel in a.kernels)
    assert_not_proven(diff_of(replace(a, kernels=late), lean()))


def test_not_without_a_trace() -> None:
    assert_not_proven(diff_of(replace(waiting(), traced_s=None), lean()))


def test_not_if_they_were_measured_apart() -> None:
    diff = diff_of(waiting(), lean(), interleaved=False)
    assert on_collective(diff)
    assert_not_proven(diff)


def test_not_if_the_intervals_meet() -> None:
    assert_not_proven(diff_of(with_interval(waiting(), 0.8), with_interval(lean(), 0.8)))


def test_not_if_the_whole_step_costs_no_more() -> None:
    """The collective costs as much as is saved elsewhere."""
    assert_not_proven(diff_of(waiting(), lean(more_j=7.0)))


def test_not_if_it_could_be_tried_and_failed() -> None:
    a, b = record(reduced, COST), record(plain, COST)
    diff = diff_of(a, b, calls=8.0)
    (found,) = diff.findings
    assert not found.proof.confirmed and found.proof.confirmation is not None
    assert [trial.change == CHANGE for trial in found.proof.confirmation.trials] == [False]


def test_not_if_its_replay_only_failed() -> None:
    """An operator of the framework that was not replayed, for lack of time, can still be tried."""
    a = record(reduced, COST)
    here = {op.id for op in a.ops if op.name == "aten::clone"}
    lost = {"energy_j": None, "low_j": None, "high_j": None, "note": "no time was left"}
    a = replace(a, replays=tuple(replace(each, **lost) if each.op in here else each for each in a.replays))
    assert_not_proven(diff_of(a, record(plain, COST), calls=8.0))


def test_not_with_the_same_program() -> None:
    assert not diff_of(waiting(), waiting()).findings
