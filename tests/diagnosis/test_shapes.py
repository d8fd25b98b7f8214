"""Other shapes of the same operators: the order of products, and a dimension with its origin; none in A/A."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import comparison_of, costs, draw, record, region_of
from invented import Tensor, call, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.evidence.shapes import count_flops, describe_shapes, find_shapes
from joulediff.diagnosis.lead import Lead, Subject, make_subject
from joulediff.model.pair import SideName
from joulediff.model.run import Run, Setting, SourceText

X, A, B = draw(64, 32), draw(32, 4, seed=1), draw(4, 32, seed=2)
WIDE, NARROW = 29, 24


def early() -> Tensor:
    return tanh((X @ A) @ B)


def late() -> Tensor:
    return tanh(X @ (A @ B))


def subject_of(a: Run, b: Run, op: str = "mm", expensive: SideName = "a") -> Subject:
    comparison = comparison_of(a, b)
    return make_subject(comparison, region_of(comparison, op), expensive)


def shapes_of(step_a: Callable[[], Tensor], step_b: Callable[[], Tensor], expensive: SideName = "a") -> list[Lead]:
    return find_shapes(subject_of(record(step_a, costs({})), record(step_b, costs({})), expensive=expensive))


def test_products_in_another_order() -> None:
    (lead,) = shapes_of(late, early)
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("api_misuse", "shape", "matmul")
    assert lead.cause.value_a == "32×4 · 4×32, 64×32 · 32×32"
    assert lead.cause.value_b == "64×32 · 32×4, 64×4 · 4×32"
    assert lead.cause.evidence[0] == "order of products: the same 2 need 139,264 operations in A and 32,768 in B"
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "return tanh(X @ (A @ B))"
    assert lead.changes[0].calls and lead.changes[0].is_cause
    assert "4.2 times the operations" in lead.suggestion


def test_products_in_several_lines_are_named_by_their_function() -> None:
    def merged() -> Tensor:
        weight = A @ B
        return tanh(X @ weight)

    (lead,) = shapes_of(merged, early)
    assert lead.cause.key == "merged" and "order of the other side in merged()" in lead.suggestion


def test_the_order_with_fewer_operations_is_no_cause() -> None:
    assert shapes_of(late, early, expensive="b") == []
    assert shapes_of(late, late) == []


def test_the_operations_of_a_product() -> None:
    run = record(early, costs({}))
    assert [count_flops(run, op.id) for op in run.ops[:2]] == [2 * 64 * 32 * 4, 2 * 64 * 4 * 32]


def padded(size: int, name: str = "head.weight") -> Tensor:
    """Return a weight with more columns than the step returns."""
    array = np.zeros((32, size), dtype=np.float32)
    array[:, :NARROW] = draw(32, NARROW, seed=3).array
    return Tensor(array, name=name, kind="parameter")


def head(size: int) -> Callable[[], Tensor]:
    weight = padded(size)

    def step() -> Tensor:
        logits = X @ weight
        return call("slice", logits.array[:, :NARROW], logits, NARROW, is_view=True)

    return step


def sized(size: int, joules: float = 1.0, **changes: Any) -> Run:
    return record(head(size), costs({"mm": joules}), **changes)


def lead_of(a: Run, b: Run) -> Lead:
    (lead,) = find_shapes(subject_of(a, b))
    return lead


def test_a_weight_is_the_origin_of_a_size() -> None:
    lead = lead_of(sized(WIDE), sized(NARROW))
    assert (lead.cause.type, lead.cause.key) == ("shape", "head.weight")
    assert (lead.cause.value_a, lead.cause.value_b) == (WIDE, NARROW)
    assert lead.cause.evidence[:2] == (
        "mm runs on 64×32 · 32×29 in A and 64×32 · 32×24 in B",
        "dimension 1 of the weight head.weight is 29 in A and 24 in B",
    )


def test_a_size_that_is_not_aligned_should_be_a_multiple() -> None:
    lead = lead_of(sized(WIDE), sized(32))
    assert lead.kind == "misconfiguration"
    assert lead.cause.evidence[2] == "29 is no multiple of 4: matrix units load rows of 16 bytes"
    assert lead.suggestion.startswith("Make head.weight a multiple of 4: 32 instead of 29")


def test_what_no_output_needs_is_redundant() -> None:
    lead = lead_of(sized(96), sized(NARROW))
    assert lead.kind == "redundant"
    assert lead.cause.evidence[2] == "75% of 96 does not reach an output of the step"
    assert lead.suggestion.startswith("Make head.weight 24 instead of 96")


def with_state(size: int) -> Run:
    state: Mapping[str, Setting] = {"model.config.vocab_size": size, "model.config.depth": 2}
    return sized(size, state=state, state_places={"model.config.vocab_size": "p.py:3:build"})


def test_a_value_of_the_state_is_the_origin_before_the_weight() -> None:
    lead = lead_of(with_state(WIDE), with_state(NARROW))
    assert lead.cause.key == "vocab_size"
    assert lead.cause.location_a is not None and (lead.cause.location_a.file, lead.cause.location_a.line) == ("p.py", 3)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("vocab = {}", "vocab"),
        ("config = Config(vocab_size={}, depth=2)", "vocab_size"),
        ("head = nn.Linear(32, {}, bias=False)", "Linear"),
        ("def build(vocab: int = {}):", "vocab"),
        ("shapes = [32, {}]", "shapes"),
    ],
)
def test_a_number_in_a_line_is_the_origin(line: str, key: str) -> None:
    a, b = (
        sized(size, sources=(SourceText("p.py", 4, f"depth = 2\n{line.format(size)}\nwidth = 32"),))
        for size in (WIDE, NARROW)
    )
    lead = lead_of(a, b)
    assert lead.cause.key == key
    assert lead.cause.location_a is not None and lead.cause.location_a.text == line.format(WIDE)
    assert lead.cause.location_b is not None and lead.cause.location_b.text == line.format(NARROW)


def rows(count: int) -> Callable[[], Tensor]:
    """Return a step on padded rows, of which a mask keeps some."""
    array = np.zeros((4, count, 8), dtype=np.float32)
    array[:, :5] = draw(4, 5, 8, seed=4).array
    given = Tensor(array, name="ids")
    kept = np.zeros((4, count), dtype=np.float32)
    kept[:, :5] = 1
    mask = Tensor(kept, name="mask")
    weight = draw(8, 16, seed=5, name="w")

    def step() -> Tensor:
        hidden = given.view(4 * count, 8) @ weight
        full = hidden.view(4, count, 16) * mask.view(4, count, 1)
        return full.sum(1)

    return step


def test_a_batch_that_is_padded_is_named_with_its_mask() -> None:
    a, b = record(rows(20), costs({})), record(rows(5), costs({}))
    lead = lead_of(a, b)
    assert (lead.kind, lead.cause.key) == ("redundant", "ids")
    assert (lead.cause.value_a, lead.cause.value_b) == (20, 5)
    assert "mm runs on 80×8 · 8×16 in A and 20×8 · 8×16 in B" in lead.cause.evidence
    assert "75% of the mask mask is 0" in lead.cause.evidence


def test_the_same_shapes_are_no_lead() -> None:
    for run in (sized(WIDE), with_state(WIDE), record(rows(20), costs({})), record(early, costs({}))):
        comparison = comparison_of(run, run)
        regions = [region for region in comparison.regions if region.a]
        assert not any(find_shapes(make_subject(comparison, region, "a")) for region in regions)
        assert diagnose(run, run).findings == ()


def test_a_size_of_unknown_origin_is_no_lead() -> None:
    def some(count: int) -> Callable[[], Tensor]:
        def step() -> Tensor:
            part = call("slice", X.array[:count], X, count, is_view=True)
            return call("slice", (part @ A).array[:8], part @ A, 8, is_view=True)

        return step

    subject = subject_of(record(some(64), costs({})), record(some(16), costs({})))
    plain = [replace(run, sources=()) for run in (subject.comparison.a, subject.comparison.b)]
    unknown = replace(subject, comparison=replace(subject.comparison, a=plain[0], b=plain[1]))
    assert find_shapes(unknown) == []
    assert describe_shapes(unknown) == "mm runs on 64×32 · 32×4 in A and 16×32 · 32×4 in B"


def test_it_comes_before_the_call_path() -> None:
    subject = subject_of(sized(96, 4.0), sized(NARROW))
    assert find_leads(subject)[0].cause.type == "shape"
