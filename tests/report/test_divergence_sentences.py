"""Sentences about a match: how it was established, and where two runs begin to differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diff_builders import divergence, gpt2_diff, row
from joulediff.model.diff import Diff, NamedDivergence
from joulediff.model.finding import Match, Region
from joulediff.report.render import render
from joulediff.report.views.diff_sentences import difference_texts, divergence_texts, note_texts
from joulediff.report.views.diff_table import diff_table
from joulediff.report.views.match_rows import basis_text, report_match
from run_builders import RunBuilder


def region(**changes: Any) -> Region:
    return replace(Region(0, "equal", (0,), (0,), (), ()), **changes)


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        ([], ""),
        ([region(kind="movement")], ""),
        (
            [region(), region(kind="movement")],
            "1 with equal results: all equal within the rounding of their float types",
        ),
        (
            [region(), region(basis="drift", drift=0.01), region(basis="drift", drift=0.042)],
            "3 with equal results: 1 equal, 2 within drift (largest 4.2%)",
        ),
        (
            [region(basis="executed", drift=0.5), region(basis="call")],
            "2 with equal results: 1 verified by execution, 1 by the calls around them",
        ),
    ],
)
def test_how_regions_were_matched(regions: list[Region], expected: str) -> None:
    run = RunBuilder().build()
    numbered = (replace(each, id=number, a=(), b=()) for number, each in enumerate(regions))
    assert basis_text(report_match(run, run, Match(tuple(numbered)))) == expected


BEGIN = "the runs begin to differ at model.layers.7.mlp.act_fn"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (divergence(), f"{BEGIN} (silu ↔ gelu): outputs 3.1% apart, rounding explains 0.2%"),
        (divergence(expected=0.0), f"{BEGIN} (silu ↔ gelu): outputs 3.1% apart"),
        (divergence(expected=float("nan")), f"{BEGIN} (silu ↔ gelu): outputs 3.1% apart"),
        (divergence(difference=1.0), f"{BEGIN} (silu ↔ gelu): the inputs are equal, the outputs are not"),
        (divergence(difference=float("nan")), f"{BEGIN} (silu ↔ gelu): the inputs are equal, the outputs are not"),
        (
            divergence(expected=0.05),
            f"{BEGIN} (silu ↔ gelu): outputs 3.1% apart, much more than in similar regions",
        ),
        (
            divergence(executed=0.029),
            f"{BEGIN} (silu ↔ gelu): outputs 3.1% apart, rounding explains 0.2%, "
            "run on the same tensors they are still 2.9% apart",
        ),
        (
            divergence(name="add", ops_b=(), location_b=None),
            f"{BEGIN} (add, only in A): B computes no equal tensor",
        ),
        (
            divergence(name="add", ops_a=(), location_a=None, where=""),
            "the runs begin to differ at lean.py:14 (add, only in B): A computes no equal tensor",
        ),
        (
            divergence(where="", location_a=None, location_b=None),
            "the runs begin to differ at silu ↔ gelu: outputs 3.1% apart, rounding explains 0.2%",
        ),
    ],
)
def test_where_the_runs_begin_to_differ(found: NamedDivergence, expected: str) -> None:
    assert divergence_texts([found]) == [expected]


def test_outputs_that_are_not_equal_are_said_first() -> None:
    texts = divergence_texts([divergence(), divergence(where="lm_head")], agree=False)
    assert texts[0].startswith("not all outputs of A and B are equal: the runs begin to differ at model.layers.7")
    assert texts[1].startswith("the runs also differ at lm_head")


@pytest.mark.parametrize(("count", "last"), [(4, "1 more place"), (6, "3 more places")])
def test_at_most_three_are_named(count: int, last: str) -> None:
    texts = divergence_texts([divergence()] * count)
    assert len(texts) == 4
    assert texts[-1] == f"the runs differ at {last}: --json lists them"
    assert len(divergence_texts([divergence()] * 3)) == 3


def with_divergences(*found: NamedDivergence, agree: bool = True) -> Diff:
    return gpt2_diff(divergences=found, outputs_agree=agree)


def test_outputs_that_differ_more_than_those_of_a_waste_are_a_warning() -> None:
    diff = with_divergences(divergence(difference=0.005), divergence(where="lm_head"))
    assert difference_texts(diff)[0].startswith("the runs also differ at lm_head")
    assert note_texts(diff)[0].startswith(BEGIN)
    assert not any("differ at" in text for text in (*difference_texts(gpt2_diff()), *note_texts(gpt2_diff())))


def test_terminal_and_markdown_name_the_place() -> None:
    diff = with_divergences(divergence(), agree=False)
    for form in ("terminal", "markdown"):
        shown = " ".join(render(diff, form).split())
        assert "not all outputs of A and B are equal: the runs begin to differ at" in shown
        assert "model.layers.7.mlp.act_fn (silu ↔ gelu)" in shown


def test_a_row_of_two_calls_says_so() -> None:
    rows = (row("mm, add", 5.0, 4.0, "changed", basis="call"), row("mul", 5.0, 4.0, "changed", basis="drift"))
    regions = [line.region for line in diff_table(gpt2_diff(rows=rows, findings=()), top=10).lines]
    assert any(each.startswith("mm, add") and each.endswith("(rest of two calls)") for each in regions)
    assert not any("mul" in each and "(" in each for each in regions)
