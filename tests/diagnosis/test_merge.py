"""Drafts of one cause merged to one: their cost together, and how much of it was confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diff_builders import finding
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.merge import add_row_to, identity, merge
from joulediff.model.diff import Thresholds
from joulediff.model.finding import Cause
from joulediff.model.place import Place
from run_builders import gpt2_run

HERE, ELSEWHERE = Place("hf.py", 3, "build"), Place("hf.py", 9, "build")
TF32 = Cause("setting", "allow_tf32", False, True, HERE, None)


def found(a_j: float, b_j: float | None, **changes: Any) -> Draft:
    made = finding(1, a_j, b_j, **{"cause": TF32, **changes})
    run = gpt2_run(1)
    return Draft(
        Comparison(run, run, ()),
        Thresholds(),
        made.expensive,
        made.region,
        made.cost,
        Lead(made.kind, made.cause, ()),
        where=made.where,
        verdict=made.verdict,
        work=made.work,
        proof=made.proof,
        regions=made.regions,
        count=made.count,
        rows=(0,),
    )


def test_one_is_as_it_is() -> None:
    each = found(3.0, 1.0)
    assert merge([each]) is each


def test_energies_add_up_and_the_dearest_speaks() -> None:
    small, large = found(3.0, 1.0, region="mm", regions=(1,)), found(30.0, 10.0, region="addmm", regions=(2, 3))
    both = merge([small, large])
    assert both.name == "addmm, 1 more" and both.regions == (2, 3, 1)
    assert both.cost.energy_a is not None and both.cost.energy_b is not None
    assert (both.cost.energy_a.joules, both.cost.energy_b.joules, both.cost.delta_j) == pytest.approx(
        (33.0, 11.0, 22.0)
    )
    assert both.cost.ratio == pytest.approx(3.0)
    assert both.cost.share_of_run == pytest.approx(22.0 / 612.4)
    assert both.cost.time_a_s == pytest.approx(2 * 0.0612)
    assert both.proof.confirmation is not None and both.proof.confirmation.saved_j == pytest.approx(44.0)


def test_a_place_in_the_model_is_reported_if_it_is_one() -> None:
    assert merge([found(3.0, 1.0), found(2.0, 1.0)]).where == "transformer.h.*.mlp.c_fc"
    assert merge([found(3.0, 1.0), found(2.0, 1.0, where="lm_head")]).where == ""


def test_most_of_it_must_be_confirmed() -> None:
    large, small = found(30.0, 10.0), found(3.0, 1.0, word="observed")
    assert merge([large, small]).confirmed
    assert not merge([found(30.0, 10.0, word="observed"), found(3.0, 1.0)]).confirmed
    assert not merge([large, found(20.0, 10.0, word="observed")]).proof.confirmed


def test_the_first_that_was_tried_with_the_others_speaks_for_them() -> None:
    both = add_row_to(found(3.0, 1.0, region="softmax"), found(9.0, None, region="clone", word="observed"))
    assert both.name == "softmax" and both.proof.confirmed
    assert both.cost.delta_j == pytest.approx(11.0)


def test_work_that_the_other_side_lacks_has_no_ratio() -> None:
    assert merge([found(3.0, None), found(2.0, None)]).cost.ratio is None


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"region": "mm"}, True),
        ({"cause": replace(TF32, location_a=ELSEWHERE)}, True),
        ({"cause": replace(TF32, type="layout")}, False),
        ({"cause": replace(TF32, key="other")}, False),
        ({"cause": replace(TF32, location_b=ELSEWHERE)}, True),
        ({"verdict": "tradeoff"}, False),
        ({"expensive": "b"}, False),
    ],
)
def test_which_findings_have_one_cause(changes: dict[str, Any], same: bool) -> None:
    assert (identity(found(3.0, 1.0)) == identity(found(2.0, 1.0, **changes))) is same


def test_a_layout_is_one_cause_only_in_one_line() -> None:
    first = found(3.0, 1.0, cause=replace(TF32, type="layout"))
    assert identity(first) != identity(found(3.0, 1.0, cause=replace(TF32, type="layout", location_a=ELSEWHERE)))


@pytest.mark.parametrize(
    "cause",
    [
        Cause("call_path", "pow", "pow", "gelu", HERE, None),
        Cause("redundancy", "contiguous", "contiguous", None, HERE, None),
        Cause("kernel", None, "x", "y", HERE, None),
    ],
)
def test_calls_and_unknown_causes_merge_only_in_one_kind_of_region(cause: Cause) -> None:
    kind = {"call_path": "api_misuse", "redundancy": "redundant", "kernel": "unknown"}[cause.type]
    first = found(3.0, 1.0, kind=kind, cause=cause)
    assert identity(first) == identity(replace(first, where="other"))
    assert identity(first) != identity(replace(first, name="other"))


def test_an_entry_of_a_configuration_is_one_cause_in_all_regions() -> None:
    config = Cause("call_path", "config.use_cache", True, False, HERE, None)
    first = found(3.0, 1.0, cause=config)
    assert identity(first) == identity(replace(first, name="other"))


def test_rows_that_do_more_of_the_same_work_in_one_call_are_one_cause() -> None:
    path = Cause("call_path", "generate", None, None, HERE, HERE)
    rows = [replace(found(3.0, 1.0, cause=path, region=name), call_key=("a", "generate")) for name in ("mm", "silu")]
    assert identity(rows[0]) == identity(rows[1])
    assert identity(rows[0]) != identity(replace(rows[1], call_key=("a", "encode")))
    assert identity(rows[0]) != identity(replace(rows[1], call_key=None))
