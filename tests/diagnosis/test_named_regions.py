"""The regions that programs name, in a diff: rows say their region, and the table sums to both steps."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from diagnosis_builders import costs, draw, record
from invented import Tensor, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.model.energy import joules_of
from joulediff.model.run import Run
from joulediff.report.json.diff import diff_from_json, diff_to_json
from joulediff.report.render import render

X, W = draw(16, 32), draw(32, 32, seed=1)


def wasteful() -> Tensor:
    return tanh(tanh(X @ W) @ W.t())


def named(run: Run, *names: str | None) -> Run:
    """Return the run with the region of each of its first operators."""
    left = list(names) + [None] * (len(run.ops) - len(names))
    return replace(run, ops=tuple(replace(op, region=name) for op, name in zip(run.ops, left, strict=True)))


@pytest.fixture(scope="module")
def runs() -> Any:
    a = named(record(wasteful, costs({"mm": 4.0})), "encoder", "encoder", None, "encoder/attention")
    b = named(record(wasteful, costs({"mm": 2.0})), "encoder")
    return a, b


def test_regions_and_the_rest_sum_to_each_step(runs: Any) -> None:
    a, b = runs
    found = diagnose(a, b)
    assert [each.name for each in found.named_regions][-1] is None
    assert {each.name for each in found.named_regions} == {"encoder", "encoder/attention", None}
    for side, run in (("a", a), ("b", b)):
        total = sum(joules_of(each.energies.of(side)) for each in found.named_regions)
        assert total == pytest.approx(run.measurement.energy.joules)
        assert sum(getattr(each, f"ops_{side}") for each in found.named_regions) == len(run.ops)
    only = next(each for each in found.named_regions if each.name == "encoder/attention")
    assert only.energy_a is not None
    assert (only.ops_b, only.energy_b) == (0, None)


def test_rows_name_their_region(runs: Any) -> None:
    assert {row.where for row in diagnose(*runs).rows} >= {"encoder", "encoder/attention"}


def test_programs_without_regions_have_no_table() -> None:
    run = record(wasteful, costs({}))
    found = diagnose(run, run)
    assert found.named_regions == ()
    assert "named region" not in render(found)


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_the_table_is_in_each_report_and_its_columns_sum(runs: Any, form: str) -> None:
    found = diagnose(*runs)
    text = render(found, form)
    assert "energy by named region" in text
    lines = text.partition("energy by named region")[2].splitlines()
    rows = [line for line in lines if "encoder" in line or "rest of the step" in line or "all of a step" in line]
    *parts, total = [float(re.findall(r"\d+\.\d+", line)[0]) for line in rows]
    assert len(parts) == 3
    assert sum(parts) == pytest.approx(total)
    assert "only in A" in text


def test_the_table_survives_json(runs: Any) -> None:
    found = diagnose(*runs)
    assert diff_from_json(diff_to_json(found).encode()).named_regions == found.named_regions
