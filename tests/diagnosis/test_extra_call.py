"""Extra work of many operators is named by the call that it lies in, and not by one of the operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import apply, comparison_of, costs, draw, record
from invented import Tensor, call, exp, relu, sigmoid, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.calls.extra_call import ExtraCall, find_extra_call
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.lead import Subject, make_subject
from joulediff.matching.match_runs import match_runs
from joulediff.model.finding import Match, Region
from joulediff.model.run import Run

X, W = draw(16, 32), draw(32, 32, seed=1)
ALIKE = costs({"mm": 10.0})


def smooth(x: Tensor) -> Tensor:
    x = x * 0.5
    x = x + 1.0
    return x * 3.0


def by_hand() -> Tensor:
    x = tanh(X)
    x = smooth(x)
    return exp(x @ W)


def at_once() -> Tensor:
    return exp(call("smooth", (np.tanh(X.array) * np.float32(0.5) + 1) * 3, tanh(X)) @ W)


def spread(x: Tensor) -> Tensor:
    x = x + x
    x = x * 0.3
    return x + x


def often() -> Tensor:
    x = tanh(X)
    for _ in range(5):
        x = spread(x)
    return exp(x @ W)


def seldom() -> Tensor:
    x = spread(tanh(X))
    return exp(call("quick", (x.array * 1.2**4).astype(np.float32), x) @ W)


def subject_of(a: Run, b: Run, op: str) -> Subject:
    comparison = comparison_of(a, b)
    names = {each.id: [comparison.a.ops[at].name for at in each.a] for each in comparison.regions}
    region = max((each for each in comparison.regions if f"aten::{op}" in names[each.id]), key=lambda each: len(each.a))
    return make_subject(comparison, region, "a")


def named(step: Callable[[], Any], other: Callable[[], Any], op: str) -> ExtraCall | None:
    return find_extra_call(subject_of(record(step, ALIKE), record(other, ALIKE), op))


def test_operators_of_a_function_are_named_by_its_call() -> None:
    found = named(by_hand, at_once, "mul")
    assert found is not None and found.name == "smooth" and not found.is_done_less
    assert found.place is not None and found.place.text == "x = smooth(x)"
    lead = find_leads(subject_of(record(by_hand, ALIKE), record(at_once, ALIKE), "mul"))[0]
    assert (lead.cause.key, lead.cause.location_a) == ("smooth", found.place)


def test_a_call_that_the_cheap_side_makes_less_often() -> None:
    found = named(often, seldom, "mul")
    assert found is not None and found.name == "spread" and found.is_done_less


def test_a_line_that_does_most_of_the_work_is_named_by_its_call() -> None:
    def in_one_line(x: Tensor) -> Tensor:
        return apply("slow", np.negative, x)

    def step() -> Tensor:
        return exp(relu(in_one_line(tanh(X))) @ W)

    def other() -> Tensor:
        return exp(call("quick", np.maximum(-np.tanh(X.array), 0), tanh(X)) @ W)

    assert named(step, other, "slow") is None


def test_the_program_itself_is_no_name() -> None:
    def all_of_it() -> Tensor:
        return often_inside()

    def often_inside() -> Tensor:
        x = X * 2.0
        x = x + x
        return x * 0.25

    def other() -> Tensor:
        return call("quick", X.array, X)

    assert named(all_of_it, other, "mul") is None


def test_a_program_and_itself_have_no_extra_call() -> None:
    assert named(by_hand, by_hand, "mul") is None


def crop(x: Tensor) -> Tensor:
    return call("crop", np.ascontiguousarray(x.array[:8]), x)


def gamma(x: Tensor) -> Tensor:
    return x * 0.5


def late() -> Tensor:
    return exp(crop(sigmoid(gamma(tanh(X)))) @ W)


def early() -> Tensor:
    return exp(sigmoid(gamma(tanh(crop(X)))) @ W)


def apart(a: Run, b: Run) -> Match:
    """Return the match of two runs, with the operators of each region with a product of numbers on one side alone."""
    found = match_runs(a, b)
    regions: list[Region] = []
    for region in found.regions:
        parts = [region]
        if any(a.ops[op].name == "aten::mul" for op in region.a):
            parts = [
                replace(region, b=(), inputs=(), outputs=(), basis="call"),
                replace(region, a=(), inputs=(), outputs=(), basis="call"),
            ]
        regions += parts
    return replace(found, regions=tuple(replace(each, id=number) for number, each in enumerate(regions)))


LATE, EARLY = record(late, costs({"mul": 30.0})), record(early, costs({"mul": 15.0}))


def test_work_that_the_other_side_does_on_smaller_tensors_is_not_left_out() -> None:
    comparison = Comparison(LATE, EARLY, apart(LATE, EARLY).regions)
    region = next(each for each in comparison.regions if each.a and not each.b)
    lead = find_leads(make_subject(comparison, region, "a"))[0]
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("redundant", "shape", "gamma")
    assert (lead.cause.value_a, lead.cause.value_b) == ("16×32", "8×32")
    assert lead.cause.evidence[0] == "mul makes 16×32 in A and 8×32 in B, at another place of the program"
    assert "it makes 2.0 times the elements" in lead.suggestion


def test_work_at_another_place_is_the_price_and_no_finding_against_the_other_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("joulediff.diagnosis.compare.match_runs", lambda a, b, **_: apart(a, b))
    (found,) = diagnose(LATE, EARLY).findings
    assert (found.expensive, found.cause.key, len(found.prices)) == ("a", "gamma", 1)
    assert found.cost.delta_j == pytest.approx(15.0, rel=0.2)
