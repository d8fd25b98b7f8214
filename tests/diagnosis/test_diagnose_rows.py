"""Whole diffs with a cause: two programs, the costs of their rows, and live programs that answer from a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import EndedProgram, LiveProgram, apply, costs, draw, record, sums
from invented import Tensor, call, exp, gelu, gelu_decomposed, softmax, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.diagnose_rows import MAX_TRIED, diagnose_row
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.significance import compare_rows
from joulediff.frameworks.jobs import JobCost
from joulediff.model.diff import Diff, Row, Thresholds
from joulediff.model.finding import Finding, Region
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Op, Run
from run_builders import energy

X, W = draw(16, 32), draw(32, 32, seed=1)
FEW = draw(16, 32, seed=2)
BIAS = Tensor(W.array[0])
SQUARE = draw(32, 32, seed=4)
FUNCTIONS = {"sin": np.sin, "cos": np.cos, "exp": np.exp, "tanh": np.tanh, "square": np.square, "cbrt": np.cbrt}
FUNCTIONS |= {"sqrt": np.sqrt, "log1p": np.log1p}


def product() -> Tensor:
    return tanh(X @ W)


def by_hand() -> Tensor:
    return gelu_decomposed(X @ W)


def built_in() -> Tensor:
    return gelu(X @ W)


def copied() -> Tensor:
    return softmax(X.t().contiguous()) @ FEW


def plain() -> Tensor:
    return softmax(X.t()) @ FEW


def slow_kernel(op: Op) -> str:
    return f"slow_{op.name}"


def dear(joules: float = 10.0, step: Callable[[], Any] = product, **changes: Any) -> Run:
    """Return a run whose products are expensive and run kernels of their own."""
    return record(step, costs({"mm": joules}), **{"kernel": slow_kernel, **changes})


def cheap(joules: float = 4.0, step: Callable[[], Any] = product, **changes: Any) -> Run:
    return record(step, costs({"mm": joules}), **changes)


def diff_of(a: Run, b: Run, answers: Mapping[str, Any] | None = None, **options: Any) -> Diff:
    """Return the diff of two programs that can be run; A answers from the table."""
    return diagnose(a, b, live={"a": LiveProgram(a, answers or {}), "b": LiveProgram(b)}, **options)


def only(diff: Diff) -> Finding:
    (found,) = diff.findings
    return found


def row_named(diff: Diff, name: str) -> Row:
    return next(row for row in diff.rows if row.name == name)


ONE, BOTH = {"torch.one": 1}, {"torch.one": 1, "torch.two": 1}
ONE_LEAN, BOTH_LEAN = {"torch.one": 2}, {"torch.one": 2, "torch.two": 2}


def test_a_setting_that_was_tried_and_helps() -> None:
    found = only(diff_of(dear(settings=ONE), cheap(settings=ONE_LEAN), {"torch.one = 2": 4.0}))
    assert (found.id, found.kind, found.verdict, found.expensive) == ("1", "misconfiguration", "waste", "a")
    assert found.cause.key == "torch.one" and found.proof.confirmed
    assert found.cost.delta_j == pytest.approx(6.0) and found.cost.ratio == pytest.approx(2.5)
    assert found.cost.share_of_run == pytest.approx(6.0 / 11.0)
    assert found.cost.p_value is not None and found.cost.p_value < 0.05
    assert found.work.ops_a == ("aten::mm",) and found.work.kernels_a == ("slow_aten::mm",)
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(6.0)
    assert found.proof.confirmation.saved_share == pytest.approx(6.0 / 11.0)
    assert "Set torch.one to 2" in found.suggestion and "X @ W" in found.suggestion


def test_the_row_of_a_finding_names_it() -> None:
    diff = diff_of(dear(settings=ONE), cheap(settings=ONE_LEAN), {"torch.one = 2": 4.0})
    row = row_named(diff, "mm")
    assert (row.verdict, row.finding) == ("finding", "1")
    assert row_named(diff, "tanh").verdict == "noise"


def test_two_settings_that_work_only_together() -> None:
    answers = {"torch.one = 2": 10.0, "torch.two = 2": 10.0, "torch.one = 2 and torch.two = 2": 4.0}
    found = only(diff_of(dear(settings=BOTH), cheap(settings=BOTH_LEAN), answers))
    assert found.proof.confirmed and found.cause.key == "torch.one and torch.two"
    assert found.proof.confirmation is not None and len(found.proof.confirmation.trials) == 3


def test_the_second_of_two_settings() -> None:
    answers = {"torch.one = 2": 10.0, "torch.two = 2": 4.0}
    found = only(diff_of(dear(settings=BOTH), cheap(settings=BOTH_LEAN), answers))
    assert found.proof.confirmed and found.cause.key == "torch.two"


@pytest.mark.parametrize(
    "answer", [10.0, 7.0, "the program crashed", JobCost(energy(4.0), 1e-3, difference=0.5)], ids=str
)
def test_a_change_that_does_not_help_is_not_confirmed(answer: Any) -> None:
    diff = diff_of(dear(settings=ONE), cheap(settings=ONE_LEAN), {"torch.one = 2": answer})
    found = only(diff)
    assert (found.kind, found.cause.key, found.proof.confirmed) == ("unknown", None, False)
    assert "torch.one" not in found.suggestion and [each.name for each in diff.also_differs] == ["torch.one"]
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j is None
    assert [trial.explains for trial in found.proof.confirmation.trials] == [False]


def test_an_unknown_cause_stays_unknown_and_is_never_confirmed() -> None:
    found = only(diff_of(dear(), cheap(), {"calls": 4.0}))
    assert (found.kind, found.cause.type, found.proof.confirmed) == ("unknown", "kernel", False)
    assert "No cause was found" in found.suggestion


def test_offline_a_setting_also_differs_and_is_no_cause() -> None:
    diff = diagnose(dear(settings=ONE), cheap(settings=ONE_LEAN))
    found = only(diff)
    assert found.cause.key is None and not found.proof.confirmed and found.proof.confirmation is None
    assert [(each.name, each.a, each.b) for each in diff.also_differs] == [("torch.one", 1, 2)]
    assert any("the program is not available, only its recording" in text for text in found.cause.evidence)


def test_a_program_that_is_a_file_is_not_tried_though_the_other_is_there() -> None:
    a, b = dear(settings=ONE), cheap(settings=ONE_LEAN)
    found = only(diagnose(a, b, live={"b": LiveProgram(b)}))
    assert not found.proof.confirmed
    assert any("the program is not available, only its recording" in text for text in found.cause.evidence)


def test_a_cheap_side_that_is_a_file_does_not_keep_the_other_from_being_tried() -> None:
    a, b = dear(settings=ONE), cheap(settings=ONE_LEAN)
    assert only(diagnose(a, b, live={"a": LiveProgram(a, {"torch.one = 2": 4.0})})).proof.confirmed


def test_a_difference_that_does_not_show_again_is_no_finding() -> None:
    diff = diff_of(dear(settings=ONE), cheap(settings=ONE_LEAN), {"own": 4.0})
    assert diff.findings == ()
    assert row_named(diff, "mm").verdict == "changed"
    assert any("did not show again" in note for note in diff.notes)


def test_an_uncertain_difference_must_appear_in_a_second_measurement() -> None:
    a, b = dear(7.0, share=0.5, settings=ONE), cheap(5.0, share=0.5, settings=ONE_LEAN)
    assert diagnose(a, b).findings == ()
    sharp = {"own": JobCost(energy(7.0, 0.005), 1e-3), "torch.one = 2": 5.0}
    other = LiveProgram(b, {"own": JobCost(energy(5.0, 0.005), 1e-3)})
    found = only(diagnose(a, b, live={"a": LiveProgram(a, sharp), "b": other}))
    assert found.proof.confirmed


def test_after_a_program_ends_findings_come_from_the_recordings() -> None:
    a, b = dear(settings=ONE), cheap(settings=ONE_LEAN)
    found = only(diagnose(a, b, live={"a": EndedProgram(a), "b": LiveProgram(b)}))
    assert found.kind == "unknown" and not found.proof.confirmed


def test_only_so_many_rows_are_tried() -> None:
    def many() -> list[Tensor]:
        given = [apply("abs", np.abs, X) * (at + 2) for at in range(len(FUNCTIONS))]
        return [apply(name, each, x) for (name, each), x in zip(FUNCTIONS.items(), given, strict=True)]

    plain_cost = costs({"abs": 0.1, "mul": 0.1})
    a = record(many, lambda op: 3.0 * (plain_cost(op) or 0.0), kernel=slow_kernel)
    b = record(many, plain_cost)
    diff = diff_of(a, b)
    tried = [f for f in diff.findings if f.proof.confirmation is not None or f.cause.not_tried is None]
    assert len(diff.findings) >= 8 and len(tried) == MAX_TRIED
    assert any("others cost more" in " ".join(f.cause.evidence) for f in diff.findings)


def two_products() -> Tensor:
    x = tanh(X @ W)
    return call("addmm", W.array[0] + x.array @ W.array, BIAS, x, W)


# Where a program sets its switch.
PLACES = {"torch.one": "hf.py:3:build"}


def test_rows_of_one_cause_are_one_finding() -> None:
    a = record(two_products, costs({"mm": 10.0, "addmm": 20.0}), kernel=slow_kernel, settings=ONE, set_places=PLACES)
    b = record(two_products, costs({"mm": 4.0, "addmm": 8.0}), settings=ONE_LEAN)
    answers = {"torch.one = 2": [8.0, 4.0]}
    diff = diff_of(a, b, answers)
    found = only(diff)
    assert found.proof.confirmed and found.region == "addmm, 1 more"
    assert found.cost.delta_j == pytest.approx(18.0)
    assert found.cost.energy_a is not None and found.cost.energy_a.joules == pytest.approx(30.0)
    assert [row.finding for row in diff.rows if row.name in ("mm", "addmm")] == ["1", "1"]
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(18.0)


def test_both_sides_may_have_their_own_waste() -> None:
    a = record(by_hand, costs({"mm": 1.0}))
    b = record(built_in, costs({"mm": 5.0, "gelu": 1.0}), kernel=slow_kernel)
    diff = diagnose(a, b)
    assert {(f.region.rpartition(" ")[2], f.expensive) for f in diff.findings} == {("gelu", "a"), ("mm", "b")}
    assert [f.cost.delta_j for f in diff.findings] == sorted((f.cost.delta_j for f in diff.findings), reverse=True)
    assert [f.id for f in diff.findings] == ["1", "2"]
    assert sums(diff)[0] == pytest.approx(a.measurement.energy.joules if a.measurement else 0.0)


def test_the_sides_may_be_exchanged() -> None:
    a, b = dear(settings=ONE), cheap(settings=ONE_LEAN)
    found = only(diagnose(b, a, live={"a": LiveProgram(b), "b": LiveProgram(a, {"torch.one = 2": 4.0})}))
    assert found.expensive == "b" and found.proof.confirmed and found.cost.delta_j == pytest.approx(6.0)
    assert (found.cause.value_a, found.cause.value_b) == (2, 1)
    assert "Set torch.one to 2" in found.suggestion


def test_a_cheap_side_that_is_slower_is_a_trade_off() -> None:
    a = dear(settings=ONE, seconds=lambda op: 1e-3)
    b = cheap(settings=ONE_LEAN, seconds=lambda op: 2e-3)
    assert only(diagnose(a, b)).verdict == "tradeoff"
    assert only(diagnose(b, a)).verdict == "tradeoff"
    assert only(diagnose(a, b, thresholds=Thresholds(slower=2.0))).verdict == "waste"


def test_times_of_a_second_look_count_more_than_recorded_ones() -> None:
    a = dear(settings=ONE, seconds=lambda op: 1e-3)
    b = cheap(settings=ONE_LEAN, seconds=lambda op: 2e-3)
    again = {
        "a": LiveProgram(a, {"own": JobCost(energy(10.0), 1e-3)}),
        "b": LiveProgram(b, {"own": JobCost(energy(4.0), 0.9e-3)}),
    }
    assert only(diagnose(a, b, live=again)).verdict == "waste"


def test_outputs_that_differ_are_a_trade_off() -> None:
    a, b = record(by_hand, costs({})), record(built_in, costs({}))
    found = only(diagnose(a, b))
    assert found.verdict == "waste" and found.cost.difference is not None and found.cost.difference < 1e-5
    assert only(diagnose(a, b, thresholds=Thresholds(difference=0.0))).verdict == "tradeoff"


def test_other_calls_that_are_cheaper() -> None:
    a, b = record(by_hand, costs({})), record(built_in, costs({}))
    found = only(diff_of(a, b, {"calls": 1.0}))
    assert (found.kind, found.proof.confirmed) == ("api_misuse", True)
    assert "Call gelu instead of" in found.suggestion and "return gelu(X @ W)" in found.suggestion


def test_work_that_one_side_does_without() -> None:
    a, b = record(copied, costs({"clone": 3.0})), record(plain, costs({}))
    found = only(diff_of(a, b, {"calls": 1.0}))
    assert (found.kind, found.cause.key, found.proof.confirmed) == ("redundant", "contiguous", True)
    assert found.cost.energy_b is None and found.cost.ratio is None and found.cost.delta_j == pytest.approx(3.0)
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(3.0)


def test_the_saving_counts_readers_similar_to_the_tried_one() -> None:
    """A copy is read by a softmax and by a product; the trial of the softmax says nothing about the product."""

    def read_twice(copy: bool) -> tuple[Tensor, ...]:
        y = X.t().contiguous() if copy else X.t()
        return softmax(y), y @ FEW, tanh(W)

    table = {"mm": 20.0}
    a = record(lambda: read_twice(copy=True), costs({"clone": 3.0, "tanh": 10.0, **table}), kernel=slow_kernel)
    b = record(lambda: read_twice(copy=False), costs(table))
    diff = diff_of(a, b, {"calls": 1.0})
    found = next(each for each in diff.findings if each.kind == "redundant")
    assert found.proof.confirmed and found.cost.delta_j == pytest.approx(3.0)
    assert found.proof.confirmation is not None and found.proof.confirmation.saved_j == pytest.approx(3.0)


def test_work_that_pays_elsewhere_is_no_finding() -> None:
    a, b = record(copied, costs({"clone": 1.0})), record(plain, costs({"_softmax": 3.0}))
    for diff in (diff_of(a, b, {"calls": 3.0}), diagnose(a, b)):
        assert not [f for f in diff.findings if f.expensive == "a"]
        prices = [price.region for found in diff.findings for price in found.prices]
        assert row_named(diff, "clone").verdict == "changed" or prices == ["clone"]


def test_work_that_one_side_lacks_belongs_to_the_finding_on_what_reads_it() -> None:
    a = record(copied, costs({"clone": 2.0, "_softmax": 6.0}), kernel=slow_kernel)
    b = record(plain, costs({"_softmax": 1.0}))
    diff = diff_of(a, b, {"calls": 1.0, "layout": 8.0})
    found = next(f for f in diff.findings if "softmax" in f.region)
    assert row_named(diff, "clone").finding == found.id == row_named(diff, "_softmax").finding
    assert found.cost.delta_j == pytest.approx(7.0)
    assert found.cost.energy_a is not None and found.cost.energy_a.joules == pytest.approx(8.0)
    assert not [f for f in diff.findings if f.cause.type == "redundancy" and f is not found]


def test_an_unused_result_is_reported_without_a_trial() -> None:
    def careless() -> Tensor:
        exp(X)
        return tanh(X)

    def careful() -> Tensor:
        return tanh(X)

    found = only(diff_of(record(careless, costs({})), record(careful, costs({}))))
    assert (found.kind, found.cause.key, found.proof.confirmed) == ("redundant", "exp", False)
    assert any("its result is read by no work that both programs do" in text for text in found.cause.evidence)


def test_a_threshold_of_the_users_own() -> None:
    a, b = dear(5.0, settings=ONE), cheap(4.0, settings=ONE_LEAN)
    assert only(diagnose(a, b))
    assert diagnose(a, b, thresholds=Thresholds(threshold=0.3)).findings == ()


def test_state_is_the_first_lead_of_recordings_and_the_last_of_programs_that_tried_it() -> None:
    runs = dear(settings=ONE, state={"net.m.fast": False}), cheap(settings=ONE_LEAN, state={"net.m.fast": True})
    a, b = (replace(run, ops=tuple(replace(op, module="m") for op in run.ops)) for run in runs)
    found = only(diagnose(a, b))
    assert (found.cause.type, found.cause.key) == ("state", "fast")
    found = only(diff_of(a, b, {"torch.one = 2": 4.0}))
    assert (found.cause.type, found.cause.key) == ("setting", "torch.one")


def test_operators_that_cost_more_than_their_step_are_no_finding() -> None:
    a, b = dear(settings=ONE, more_j=-8.0), cheap(settings=ONE_LEAN)
    diff = diagnose(a, b)
    assert diff.findings == ()
    assert any("cost more than the whole step" in note for note in diff.notes)


def padded(rows: int, last: Callable[[Tensor], Tensor] = exp) -> Callable[[], Any]:
    """Return a step on 16 rows that count and others that no other program has."""
    x = Tensor(np.concatenate([X.array, 3 + draw(rows, 32, seed=rows).array]))

    def step() -> Tensor:
        y = x
        for weight in (W, SQUARE, W, SQUARE):
            y = tanh(exp(y @ weight) + y)
        y = last(y)
        return call("slice", y.array[:16], y, 16, is_view=True)

    return step


def test_rows_that_do_more_of_the_same_work_are_one_finding() -> None:
    """Their tensors differ in size, so neither program's operators can run on the other's tensors."""
    table = {"mm": 10.0, "exp": 3.0, "tanh": 2.0}
    a, b = record(padded(48), costs(table)), record(padded(8), costs({"mm": 4.0, "exp": 1.0, "tanh": 2.0}))
    programs = {"a": LiveProgram(a), "b": LiveProgram(b)}
    diff = diagnose(a, b, live=programs)
    found = only(diff)
    assert (found.region, found.kind, found.cause.type) == ("mm, 1 more", "redundant", "shape")
    assert found.cost.delta_j == pytest.approx(4 * 6.0 + 5 * 2.0)
    assert found.cause.evidence[:2] == (
        "mm runs on 64×32 · 32×32 in A and 24×32 · 32×32 in B",
        "dimension 0 of a tensor that the step was given is 64 in A and 24 in B",
    )
    why = "not tried: its tensors differ between the programs, and only the calls around it agree"
    assert found.cause.not_tried == why
    assert not found.proof.confirmed and not found.proof.trials
    assert set(programs["a"].asked) == {"own"}, "its own operators are measured again, and nothing else is run"
    assert not [row for row in diff.rows if row.kind == "unmatched"]


def test_work_of_one_side_in_calls_that_agree_is_not_called_redundant() -> None:
    """It may be a part of another way to compute the outputs."""

    def scaled(y: Tensor) -> Tensor:
        return exp(apply("cosh", np.cosh, y) * 0.0 + y)

    a = record(padded(48, scaled), costs({"cosh": 9.0}))
    b = record(padded(8), costs({}))
    found = next(each for each in diagnose(a, b).findings if "cosh" in each.region)
    assert (found.kind, found.proof.confirmed) == ("unknown", False)
    assert found.cause.evidence[0] == "aten::cosh runs on this side only, in calls whose outputs agree"
    assert found.suggestion.startswith("No cause was found.")


def test_a_larger_row_that_does_not_cost_more_again_is_no_finding() -> None:
    a, b = (record(padded(rows), costs({"mm": joules})) for rows, joules in ((48, 10.0), (8, 4.0)))
    diff = diff_of(a, b, {"own": 4.0})
    assert not diff.findings
    assert any("did not show again" in note for note in diff.notes)


def test_larger_rows_of_recordings_are_found_too() -> None:
    a, b = (record(padded(rows), costs({"mm": joules})) for rows, joules in ((48, 10.0), (8, 4.0)))
    found = only(diagnose(a, b))
    assert found.cause.not_tried == "not tried: the program is not available, only its recording"


def test_programs_with_other_results_keep_their_operators_apart() -> None:
    a, b = record(padded(48), costs({"mm": 10.0})), record(padded(8, softmax), costs({"mm": 4.0}))
    diff = diagnose(a, b)
    assert not diff.findings
    left = row_named(diff, "no counterpart")
    assert (left.ops_a, left.ops_b) == (len(a.ops), len(b.ops)) == (diff.a.unmatched, diff.b.unmatched)


def unread(*inputs: Tensor, joules: float = 8.0) -> Run:
    """Return a step that computes tensors which nothing reads."""

    def step() -> Tensor:
        for each in inputs:
            exp(each)
        return tanh(X @ W)

    return record(step, costs({"mm": 4.0, "exp": joules}))


def found_alone(a: Run, b: Run) -> bool:
    """Return whether the operators of `a` that nothing reads are a finding, where those of `b` are in another row."""
    alone = [[op.id for op in run.ops if op.name == "aten::exp"] for run in (a, b)]
    others = (*alone[1], b.ops[-1].id)
    regions = [Region(0, "unused", tuple(alone[0]), (), (), ()), Region(1, "unused", (), others, (), ())]
    comparison = Comparison(a, b, regions)
    rows = compare_rows(comparison)
    work = Investigation(comparison, rows, Thresholds(), {}, ProgressListener())
    at = next(at for at, row in enumerate(rows) if row.expensive == "a")
    return diagnose_row(work, at, rows[at], is_sure=True) is not None


@pytest.mark.parametrize(
    ("mine", "other", "joules", "is_found"),
    [((X,), (FEW,), 8.0, False), ((X, FEW), (FEW,), 8.0, True), ((X,), (), 8.0, True), ((X,), (FEW,), 1.0, True)],
    ids=["as much", "more often", "only here", "dearer here"],
)
def test_work_that_the_other_side_does_elsewhere_is_no_finding(
    mine: tuple[Tensor, ...], other: tuple[Tensor, ...], joules: float, is_found: bool
) -> None:
    """The match pairs operators by values: as many of a kind, at the same cost, are no extra work."""
    assert found_alone(unread(*mine), unread(*other, joules=joules)) == is_found
