"""Work that is repeated on the same values is found, with the function that runs it; work of both sides is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import invented
from diagnosis_builders import comparison_of, costs, draw, measured, record
from invented import Tensor, call, exp, sigmoid, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.evidence.repetition import find_repetition
from joulediff.diagnosis.lead import Lead, make_subject
from joulediff.model.finding import Region
from joulediff.model.run import Frame, Run, SourceText

X, W, POSITIONS = draw(16, 32), draw(32, 32, seed=1), draw(16, 32, seed=2)
LAYERS = 4


def tables() -> Tensor:
    return exp(tanh(POSITIONS))


def layer(x: Tensor, table: Tensor) -> Tensor:
    return sigmoid(x @ W) * table


def per_layer() -> Tensor:
    x = X
    for _ in range(LAYERS):
        table = tables()
        x = layer(x, table)
    return x


def once() -> Tensor:
    x, table = X, tables()
    for _ in range(LAYERS):
        x = layer(x, table)
    return x


def in_line() -> Tensor:
    x = X
    for _ in range(LAYERS):
        x = layer(x, exp(POSITIONS))
    return x


def in_line_once() -> Tensor:
    x, table = X, exp(POSITIONS)
    for _ in range(LAYERS):
        x = layer(x, table)
    return x


COSTS = costs({"exp": 5.0, "tanh": 3.0})


def leads_of(a: Run, b: Run) -> list[Lead]:
    """Return the leads of the regions that only A has, or that A has more of."""
    comparison = comparison_of(a, b)
    return [
        lead for region in extra_regions(comparison) for lead in find_repetition(make_subject(comparison, region, "a"))
    ]


def extra_regions(comparison: Comparison) -> list[Any]:
    return [region for region in comparison.regions if len(ops_of(region, "a")) > len(ops_of(region, "b"))]


def test_the_function_that_is_called_in_each_layer_is_the_key() -> None:
    found = leads_of(record(per_layer, COSTS), record(once, COSTS))
    assert found
    for lead in found:
        assert (lead.kind, lead.cause.type, lead.cause.key) == ("redundant", "repetition", "tables")
        assert (lead.cause.value_a, lead.cause.value_b) == (LAYERS, 1)
        assert lead.cause.location_a is not None and lead.cause.location_a.text == "table = tables()"
        assert lead.cause.evidence == (
            f"the same 2 operators on the same values, {LAYERS} times in a step; the other side runs them once",
        )
        assert lead.suggestion.startswith("Call tables once and keep its result (")


def test_a_call_in_a_line_with_other_work_is_the_key() -> None:
    found = leads_of(record(in_line, COSTS), record(in_line_once, COSTS))
    assert {lead.cause.key for lead in found} == {"exp"}
    assert {lead.cause.evidence[0].partition(" on ")[0] for lead in found} == {"the same operator"}


def test_it_is_the_finding_of_a_diff() -> None:
    diff = diagnose(record(per_layer, COSTS), record(once, COSTS))
    first = diff.findings[0]
    assert (first.kind, first.cause.type, first.cause.key) == ("redundant", "repetition", "tables")
    assert len(diff.findings) == 1, "all of it is one cause"
    assert first.cost.delta_j == pytest.approx(3 * 8.0)


@pytest.mark.parametrize("step", [per_layer, once, in_line])
def test_work_that_both_sides_repeat_is_no_cause(step: Callable[[], Tensor]) -> None:
    a, b = record(step, costs({"exp": 9.0, "tanh": 9.0})), record(step, COSTS)
    comparison = comparison_of(a, b)
    assert not any(find_repetition(make_subject(comparison, each, "a")) for each in comparison.regions if each.a)
    assert diagnose(b, b).findings == ()


def test_the_same_operator_on_other_values_is_no_repetition() -> None:
    def grows() -> Tensor:
        x = X
        for _ in range(LAYERS):
            x = exp(tanh(x))
        return x

    run = record(grows, COSTS)
    assert list(run.index.same_before) == [op.id for op in run.ops]


def test_the_extra_operators_of_a_region_count_alone() -> None:
    """What both sides run in each layer may be in one region with the work that one of them repeats."""
    a, b = record(per_layer, COSTS), record(once, COSTS)
    last = [
        max(op.id for op in run.ops if op.name == name) for run, name in ((a, "aten::sigmoid"), (b, "aten::sigmoid"))
    ]
    copies = [op.id for op in a.ops if op.name in ("aten::exp", "aten::tanh")][-2:]
    region = Region(99, "equal", (*copies, last[0]), (last[1],), (), ())
    comparison = Comparison(a, b, [*comparison_of(a, b).regions, region])
    (lead,) = find_repetition(make_subject(comparison, region, "a"))
    assert (lead.cause.key, lead.cause.value_a) == ("tables", LAYERS)


def test_a_line_that_does_not_run_it_each_time_does_not_name_it() -> None:
    """The first time is a line of the forward code, the second one of the backward code, inside of the framework."""
    run = record(lambda: tables() + tables(), COSTS)
    path = (Frame("p.py", 3, "step", None, None), Frame("p.py", 4, "step", None, None))
    library = tuple(Frame("lib/block.py", 7, "Block.forward", "lib", at) for at in (0, 1))
    ops = tuple(replace(op, frame=frame) for op, frame in zip(run.ops, (2, 2, 3, 3, 0), strict=True))
    text = "loss = model(x)\nloss.backward()"
    changed = replace(run, frames=(*path, *library), ops=ops, sources=(SourceText("p.py", 3, text),))
    other = record(lambda: tables() + X, COSTS)
    region = Region(99, "repeated", (2, 3), (), (), ())
    (lead,) = find_repetition(make_subject(Comparison(changed, other, [region]), region, "a"))
    assert lead.cause.key == "Block"
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "loss.backward()"


@pytest.mark.parametrize(("product_j", "key"), [(9.0, "Encoder"), (0.5, "model")])
def test_a_call_that_does_much_else_does_not_name_the_part_that_is_repeated(product_j: float, key: str) -> None:
    """The encoder of a model runs on the same image for each question, the rest of it on the question."""

    def asked(*encoded: Tensor) -> Tensor:
        return sigmoid(encoded[0] @ W) + sigmoid(encoded[-1] @ draw(32, 32, seed=3))

    each = costs({"exp": 9.0, "tanh": 9.0, "mm": product_j, "sigmoid": 0.1})
    run = record(lambda: asked(tables(), tables()), each)
    assert [op.name for op in run.ops[:5]] == [f"aten::{name}" for name in ("tanh", "exp", "tanh", "exp", "mm")]
    frames = (
        Frame("p.py", 3, "step", None, None),
        Frame("lib/model.py", 7, "Model.forward", "lib", 0),
        Frame("lib/model.py", 2, "Encoder.forward", "lib", 1),
    )
    places = (*([2] * 4), *([1] * (len(run.ops) - 5)), 0)
    ops = tuple(replace(op, frame=frame) for op, frame in zip(run.ops, places, strict=True))
    changed = replace(run, frames=frames, ops=ops, sources=(SourceText("p.py", 3, "out = model(x)"),))
    region = Region(99, "repeated", (2, 3), (), (), ())
    other = record(lambda: asked(tables()), each)
    (lead,) = find_repetition(make_subject(Comparison(changed, other, [region]), region, "a"))
    assert lead.cause.key == key
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "out = model(x)"


@pytest.mark.parametrize(("owner", "key"), [("lib", "Encoder"), (None, "build.encode")])
def test_a_wrapper_of_a_library_does_not_name_a_repetition(owner: str | None, key: str) -> None:
    """A function of the user's own inside another one is no wrapper."""
    name = "decorate.<locals>.wrapper" if owner else "build.<locals>.encode"
    frames = (
        Frame("p.py", 3, "step", None, None),
        Frame("p.py", 9, name, owner, 0),
        Frame("lib/model.py", 2, "Encoder.forward", "lib", 1),
    )
    run = record(lambda: tables() + tables(), COSTS)
    ops = tuple(replace(op, frame=0 if op.id == 4 else 2) for op in run.ops)
    changed = replace(run, frames=frames, ops=ops, sources=(SourceText("p.py", 3, "y = model(x) + model(x)"),))
    region = Region(99, "repeated", (2, 3), (), (), ())
    other = record(lambda: tables() + X, COSTS)
    (lead,) = find_repetition(make_subject(Comparison(changed, other, [region]), region, "a"))
    assert lead.cause.key == key


def test_random_numbers_are_no_repetition() -> None:
    def draws() -> Tensor:
        noise = [call("rand", draw(8, 8, seed=seed).array) for seed in (1, 2)]
        return noise[0] + noise[1]

    run = measured(invented.record(draws), COSTS)
    assert list(run.index.same_before) == [0, 1, 2]


def test_equal_tensors_of_two_layers_are_the_same_values() -> None:
    one, other = draw(8, 8, seed=5, name="h.0.freq"), draw(8, 8, seed=5, name="h.1.freq")

    def step() -> Tensor:
        return exp(one) + exp(other)

    assert list(record(step, COSTS).index.same_before) == [0, 0, 2]


def test_a_copy_is_better_left_out() -> None:
    def copies() -> Tensor:
        return tanh(W.t().contiguous()) + exp(W.t().contiguous())

    def plain() -> Tensor:
        return tanh(W.t()) + exp(W.t())

    comparison = comparison_of(record(copies, COSTS), record(plain, COSTS))
    leads = [lead for region in extra_regions(comparison) for lead in find_leads(make_subject(comparison, region, "a"))]
    assert leads
    assert all(lead.cause.type == "redundancy" for lead in leads)


def test_a_function_whose_first_time_differs_is_repeated() -> None:
    """Each step computes the table of the last one again: only the first and the last are computed once."""

    def table(x: Tensor) -> Tensor:
        return exp(tanh(x))

    def leap(x: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        x = sigmoid(x @ W) + first
        return x, table(x)

    def kept() -> Tensor:
        x, last = X, table(X)
        for _ in range(10):
            x, last = leap(x, last)
        return x

    def again() -> Tensor:
        x = X
        for _ in range(10):
            x, _ = leap(x, table(x))
        return x

    found = leads_of(record(again, costs({})), record(kept, costs({})))
    assert {(lead.cause.key, lead.cause.value_a, lead.cause.value_b) for lead in found} == {("table", 2, 1)}
