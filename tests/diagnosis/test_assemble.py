"""Whole diffs without a cause: a program against itself, rows that sum to the meter, and claims that are never made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import invented
import paths
from diagnosis_builders import apply, assert_books_close, costs, draw, jitter, measured, record
from invented import Tensor, exp, gelu, gelu_decomposed, softmax, sqrt, tanh
from joulediff.archive.reader import load
from joulediff.diagnosis.compare import diagnose
from joulediff.matching.match_runs import match_runs
from joulediff.model.measurement import Measurement
from joulediff.model.run import Run
from joulediff.report.views.diff_sentences import headline
from run_builders import domain_energy, energy

GOLDEN = paths.GOLDEN
X, W, V = draw(16, 32), draw(32, 32, seed=1), draw(32, 32, seed=2)
SEEDS = st.integers(0, 2**32)


def step() -> Tensor:
    return tanh(softmax(X @ W) @ W.t())


def by_hand() -> Tensor:
    return gelu_decomposed(X @ W)


def built_in() -> Tensor:
    return gelu(X @ W)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_run_and_itself_has_no_finding(device: str) -> None:
    run = record(step, costs({"mm": 2.0}), device=device)
    diff = diagnose(run, run)
    assert diff.findings == ()
    assert diff.comparable
    assert diff.ratio is not None and diff.ratio.value == 1.0
    assert {row.verdict for row in diff.rows} == {"noise"}
    assert diff.same_work


def test_other_kernels_or_operators_are_not_the_same_work() -> None:
    run = record(step, costs({}))
    assert not diagnose(record(step, costs({}), kernel=lambda op: "other"), run).same_work
    assert not diagnose(measured(BY_HAND, costs({})), measured(BUILT_IN, costs({}))).same_work


@given(SEEDS, st.sampled_from(["cpu", "cuda:0"]))
@settings(deadline=None, max_examples=15)
def test_the_same_program_recorded_twice_has_no_finding_however_its_energies_jitter(seed: int, device: str) -> None:
    run = invented.record(step)
    a, b = (measured(run, jitter(seed + at), device=device, share=0.001) for at in range(2))
    assert diagnose(a, b).findings == ()


@given(SEEDS, st.floats(0.0, 500.0), st.floats(-2.0, 5.0))
@settings(deadline=None, max_examples=20)
def test_rows_sum_to_what_was_metered(seed: int, rest_w: float, more_j: float) -> None:
    a = measured(BY_HAND, jitter(seed), rest_w=rest_w, more_j=more_j)
    b = measured(BUILT_IN, jitter(seed + 1), rest_w=rest_w, more_j=more_j / 2)
    assert_books_close(a, b)


BY_HAND, BUILT_IN = invented.record(by_hand), invented.record(built_in)


def test_rows_sum_where_kernels_belong_to_no_operator() -> None:
    run = record(step, costs({"mm": 2.0}))
    loose = replace(run, kernels=tuple(replace(k, op=None, join="none") for k in run.kernels))
    assert_books_close(loose, run)


def test_rows_sum_without_a_trace() -> None:
    run = record(step, costs({}))
    dark = replace(run, kernels=(), replays=(), traced_s=None)
    assert_books_close(dark, run)
    diff = diagnose(dark, run)
    assert diff.findings == ()
    assert {row.verdict for row in diff.rows if row.kind == "equal"} == {"unknown"}


def test_domains_that_do_not_count_are_in_no_row() -> None:
    run = record(step, costs({}))
    assert run.measurement is not None
    cpu = domain_energy(7.0, 10e-3, None, counted=False)
    both = replace(run.measurement, domains={**run.measurement.domains, "cpu": cpu})
    assert_books_close(replace(run, measurement=both), run)


def test_every_operator_is_in_one_row() -> None:
    diff = diagnose(measured(BY_HAND, costs({})), measured(BUILT_IN, costs({})))
    assert sum(row.count * row.ops_a for row in diff.rows) == len(BY_HAND.ops)
    assert sum(row.count * row.ops_b for row in diff.rows) == len(BUILT_IN.ops)


def with_measurement(run: Run, **changes: Any) -> Run:
    assert run.measurement is not None
    found: Measurement = replace(run.measurement, **changes)
    return replace(run, measurement=found)


def test_the_whole_difference_has_an_interval_and_a_share_that_is_explained() -> None:
    a = measured(BY_HAND, costs({"mm": 1.0}))
    b = measured(BUILT_IN, costs({"mm": 1.0}))
    diff = diagnose(a, b, interleaved=True)
    assert diff.delta_j is not None and diff.delta_low_j is not None and diff.delta_high_j is not None
    assert diff.delta_low_j < diff.delta_j < diff.delta_high_j
    assert diff.ratio is not None and diff.ratio.low < diff.ratio.value < diff.ratio.high
    assert diff.explained_share == pytest.approx(1.0)


def test_runs_that_were_not_measured_in_turns_are_less_sure() -> None:
    a, b = measured(BY_HAND, costs({})), measured(BUILT_IN, costs({}))
    apart, in_turns = diagnose(a, b).ratio, diagnose(a, b, interleaved=True).ratio
    assert apart is not None and in_turns is not None
    assert apart.low < in_turns.low and in_turns.high < apart.high


def test_the_difference_without_a_finding_remains() -> None:
    a = measured(BY_HAND, costs({"mm": 1.0}), more_j=7.0)
    diff = diagnose(a, measured(BUILT_IN, costs({"mm": 1.0})), interleaved=True)
    assert diff.explained_share == pytest.approx(0.5, abs=0.02)


def test_nothing_is_explained_where_the_totals_may_be_equal() -> None:
    a = with_measurement(measured(BY_HAND, costs({})), energy=energy(9.0, 0.9))
    assert diagnose(a, measured(BUILT_IN, costs({}))).explained_share is None


def test_findings_on_both_sides_cancel_in_the_share() -> None:
    """A waste of B reduces the share of A's extra energy that findings explain."""
    a = measured(BY_HAND, costs({"mm": 1.0}))
    b = measured(BUILT_IN, costs({"mm": 3.0}), kernel=lambda op: f"other_{op.name}")
    diff = diagnose(a, b, interleaved=True)
    signed = sum(f.cost.delta_j if f.expensive == "a" else -f.cost.delta_j for f in diff.findings)
    assert {f.expensive for f in diff.findings} == {"a", "b"}
    assert diff.delta_j is not None and diff.explained_share == pytest.approx(signed / diff.delta_j)


def test_programs_that_do_not_do_the_same_job_have_no_finding() -> None:
    def other() -> Tensor:
        return apply("sort", np.sort, apply("cumsum", lambda x: np.cumsum(x, 1), X))

    def third() -> Tensor:
        return exp(apply("sin", np.sin, X) * 7)

    diff = diagnose(record(other, costs({})), record(third, costs({})))
    assert diff.findings == ()
    assert any("may not do the same job" in note for note in diff.notes)
    assert not [row for row in diff.rows if row.kind == "equal"]


def test_a_diff_says_where_the_runs_begin_to_differ() -> None:
    def step(epsilon: float) -> Tensor:
        hidden = X @ W
        return tanh((hidden / sqrt((hidden * hidden).mean(1, keepdim=True) + epsilon)) @ V)

    a, b = (record(lambda each=each: step(each), costs({})) for each in (1e-6, 1e-3))
    diff = diagnose(a, b)
    first = diff.divergences[0]
    assert first.location_a is not None and first.location_a.file == "tests/diagnosis/test_assemble.py"
    assert first.ops_a == first.ops_b and "aten::mean" not in first.ops_a
    assert first.difference > first.expected
    drifts = {row.name: (row.basis, row.drift) for row in diff.rows if row.kind == "equal"}
    assert drifts["tanh"][0] == "drift" and (drifts["tanh"][1] or 0.0) > 1e-6
    assert drifts["mean"][0] == "equal"
    assert diagnose(a, a).divergences == ()


def test_a_diff_keeps_the_notes_of_the_match(monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(BY_HAND, costs({}))
    found = replace(match_runs(run, run), notes=("3 of 4 weights differ",), outputs_agree=False)
    monkeypatch.setattr("joulediff.diagnosis.compare.match_runs", lambda *_, **__: found)
    diff = diagnose(run, run)
    assert "3 of 4 weights differ" in diff.notes and not diff.outputs_agree


def test_two_runs_without_energy_have_rows_of_unknown_verdict() -> None:
    a, b = (replace(run, measurement=None) for run in (BY_HAND, BUILT_IN))
    diff = diagnose(a, b)
    assert diff.findings == () and diff.ratio is None and diff.explained_share is None
    assert {row.verdict for row in diff.rows} <= {"unknown"}
    assert any("neither run was metered" in note for note in diff.notes)


def golden(name: str) -> Run:
    return load(GOLDEN / f"{name}.jd")


@pytest.mark.parametrize("name", ["closure/gpt2", "closure/llama", "closure/resnet50", "match/h200_bert"])
def test_a_recording_of_an_h200_and_itself(name: str) -> None:
    run = golden(name)
    diff = diagnose(run, run)
    assert diff.findings == () and diff.ratio is not None and diff.ratio.value == 1.0
    assert {row.verdict for row in diff.rows} == {"noise"}
    assert_books_close(run, run)


def test_training_recorded_on_an_h200_and_itself() -> None:
    run = golden("closure/train")
    assert diagnose(run, run).findings == ()


def test_bert_recorded_twice_on_an_h200() -> None:
    """Two processes whose energies differ by 6 % of noise."""
    a, b = golden("match/h200_bert"), golden("match/h200_bert_again")
    diff = diagnose(a, b)
    assert diff.comparable and diff.findings == ()
    assert diff.ratio is not None and diff.ratio.low < 1.0 < diff.ratio.high
    assert_books_close(a, b)


def test_gpt2_with_eager_and_fused_attention_on_a_busy_cpu_claims_nothing() -> None:
    """Estimates of ±30 %: work that one side lacks is shown, and none is called a waste."""
    a, b = golden("match/gpt2_eager"), golden("match/gpt2_sdpa")
    diff = diagnose(a, b)
    assert diff.comparable and diff.findings == ()
    assert {row.verdict for row in diff.rows} == {"noise", "only_a"}
    assert any("scaled_dot_product" in row.name for row in diff.rows)
    assert_books_close(a, b)


def test_more_energy_around_the_same_kernels_is_reported_and_not_denied() -> None:
    b = record(step, costs({"mm": 2.0}))
    assert b.measurement is not None
    a = record(step, costs({"mm": 2.0}), more_j=1.1 * b.measurement.energy.joules)
    diff = diagnose(a, b)
    assert diff.same_work and diff.ratio is not None
    assert diff.ratio.value == pytest.approx(2.1)
    text = headline(diff)
    assert text.startswith("A uses 2.10x the energy of B")
    assert text.endswith("ran the same kernels on the same shapes; most of the difference is outside the kernels.")
