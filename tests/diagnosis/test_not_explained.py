"""The part of a difference that no finding explains: it is never lost, and it says where it lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import invented
import paths
from diagnosis_builders import assert_books_close, costs, draw, measured, record
from invented import Tensor, gelu, gelu_decomposed, softmax, tanh
from joulediff.archive.reader import load
from joulediff.diagnosis.compare import diagnose
from joulediff.model.diff import Diff
from joulediff.report.render import render
from joulediff.report.views.diff_sentences import findings_text

HERE = "tests/diagnosis/test_not_explained.py"
X, W = draw(16, 32), draw(32, 32, seed=1)


def step() -> Tensor:
    return tanh(softmax(X @ W) @ W.t())


def by_hand() -> Tensor:
    return gelu_decomposed(X @ W)


def built_in() -> Tensor:
    return gelu(X @ W)


STEP, BY_HAND, BUILT_IN = (invented.record(each) for each in (step, by_hand, built_in))


def more(joules: float, **changes: Any) -> Diff:
    """Return the diff of a program and itself, with more energy in A that no kernel used."""
    a, b = measured(STEP, costs({}), more_j=joules, **changes), measured(STEP, costs({}))
    return diagnose(a, b, interleaved=True)


def test_a_significant_ratio_without_a_finding_is_not_explained() -> None:
    diff = more(4.0)
    assert diff.findings == () and diff.not_explained is not None
    energy = diff.not_explained.energy
    assert energy.joules == pytest.approx(4.0) and energy.low > 0.0
    assert (energy.joules, energy.low, energy.high) == (diff.delta_j, diff.delta_low_j, diff.delta_high_j)


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_no_finding_never_stands_beside_a_significant_ratio(form: str) -> None:
    shown = render(more(4.0), form)
    assert "not explained" in shown and "no finding" not in shown.lower()
    assert "No finding: no region differs" in render(more(0.0), form)


def test_a_small_difference_is_not_lost_either() -> None:
    """A difference below the threshold that the meter is sure of."""
    a, b = measured(STEP, costs({}), more_j=0.08), measured(STEP, costs({}))
    sure = [replace(run, measurement=_sure(run)) for run in (a, b)]
    diff = diagnose(*sure, interleaved=True)
    assert diff.ratio is not None and not diff.ratio.may_be_one and diff.ratio.value < 1.05
    assert diff.not_explained is not None and diff.not_explained.energy.joules == pytest.approx(0.08)


def _sure(run: Any) -> Any:
    found = run.measurement
    energy = replace(found.energy, low=found.energy.joules * 0.9999, high=found.energy.joules * 1.0001)
    domains = {name: replace(each, energy=energy) for name, each in found.domains.items()}
    return replace(found, energy=energy, domains=domains)


def test_a_difference_that_may_be_noise_is_not_reported() -> None:
    assert more(0.01).not_explained is None


def test_what_findings_explain_is_taken_off() -> None:
    a = measured(BY_HAND, costs({"mm": 1.0}), more_j=7.0)
    diff = diagnose(a, measured(BUILT_IN, costs({"mm": 1.0})), interleaved=True)
    assert diff.findings and diff.delta_j is not None and diff.not_explained is not None
    explained_j = sum(finding.cost.delta_j for finding in diff.findings)
    assert diff.not_explained.energy.joules == pytest.approx(diff.delta_j - explained_j) == pytest.approx(7.0)
    assert findings_text(diff).endswith("7.000 J more in A is not explained.")


def test_nothing_is_left_where_findings_explain_all() -> None:
    diff = diagnose(measured(BY_HAND, costs({"mm": 1.0})), measured(BUILT_IN, costs({"mm": 1.0})), interleaved=True)
    assert diff.findings and diff.not_explained is None


def test_the_rest_of_the_cheap_side_is_negative() -> None:
    a, b = measured(STEP, costs({})), measured(STEP, costs({}), more_j=4.0)
    diff = diagnose(a, b, interleaved=True)
    assert diff.not_explained is not None and diff.not_explained.energy.high < 0.0
    assert "not explained: B uses 4.000 J more" in render(diff, "terminal")


def test_the_functions_of_the_rows_that_differ_are_named() -> None:
    """The same kernel costs more in one function: its row cannot be a finding, and is not called noise."""
    a, b = measured(STEP, costs({"mm": 4.0})), measured(STEP, costs({"mm": 2.0}))
    diff = diagnose(a, b, interleaved=True)
    assert diff.findings == () and diff.same_work and diff.not_explained is not None
    (place,) = diff.not_explained.functions_a
    assert (place.file, place.function) == (HERE, "step")
    assert diff.not_explained.functions_b == diff.not_explained.functions_a
    assert "both run mm" in diff.not_explained.differs[0]
    assert "with the same kernels on the same shapes (+" in diff.not_explained.differs[0]
    assert {row.verdict for row in diff.rows if row.name == "mm"} == {"changed"}


def test_other_kernels_and_shapes_are_named() -> None:
    def narrow() -> Tensor:
        return tanh(X @ W)

    a = record(narrow, costs({}), kernel=lambda op: "slow_kernel", more_j=0.0, share=0.9)
    b = record(narrow, costs({}, rest=0.5), kernel=lambda op: "fast_kernel", share=0.9)
    diff = diagnose(a, b, interleaved=True)
    assert diff.findings == () and diff.not_explained is not None
    assert any("slow_kernel in A and fast_kernel in B" in text for text in diff.not_explained.differs)


def test_runs_that_cannot_be_compared_have_no_rest() -> None:
    a, b = measured(STEP, costs({}), more_j=4.0), measured(STEP, costs({}))
    diff = diagnose(
        replace(a, settings={"device.cuda:0.name": "one"}), replace(b, settings={"device.cuda:0.name": "x"})
    )
    assert not diff.comparable and diff.not_explained is None


def test_a_host_that_launches_more_names_the_operators() -> None:
    """A recorded pair whose cause can be confirmed by the programs only."""
    folder = paths.GOLDEN / "cases" / "h200" / "sglang-5128"
    a, b = load(folder / "a.jd"), load(folder / "b.jd")
    found = diagnose(a, b).not_explained
    assert found is not None and found.differs[0].startswith("idle time of the device (+")
    assert [place.function for place in (*found.functions_a, *found.functions_b)] == ["route", "route"]
    assert any("A runs _softmax, sort, sum, 1 more and B runs topk, _softmax ×32" in text for text in found.differs)
    assert_books_close(a, b)
