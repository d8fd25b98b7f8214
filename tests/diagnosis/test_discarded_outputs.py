"""Outputs that are computed and not read, and copies in the code: the call or argument that is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diagnosis_builders import LiveProgram, comparison_of, costs, region_of
from diagnosis_torch import draw, record
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.calls.call_path import NOT_TRACED
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.lead import Lead, make_subject
from joulediff.frameworks.framework import source_hints
from joulediff.model.diff import Diff
from joulediff.model.finding import Finding
from joulediff.model.run import Frame, Run
from joulediff.pysource.line_trace import LineTrace, Target, TraceLine, TraceStep
from joulediff.pysource.tracing.line_tracer import watch_lines

HERE = Path(__file__)
X, W = draw(16, 32), draw(32, 64, seed=1)
FEW = X[:8].clone()
LIBRARY = "fancy/modeling.py"
THROWN = "mm makes 1,024 numbers where the other side makes 128; the rest is not read"

Program = Callable[[], Any]


def forward(x: torch.Tensor, logits_to_keep: int = 0) -> torch.Tensor:
    """Stands for a library's function; it keeps all rows by default."""
    kept = slice(-logits_to_keep, None)
    return project(x[kept])


def project(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ W)


def every_token() -> torch.Tensor:
    with torch.no_grad():
        return forward(X)[-2:]


def last_tokens() -> torch.Tensor:
    with torch.no_grad():
        return forward(X, logits_to_keep=2)


def by_hand() -> torch.Tensor:
    with torch.no_grad():
        return torch.tanh((X @ W)[-2:])


def by_hand_first() -> torch.Tensor:
    with torch.no_grad():
        return torch.tanh(X[-2:] @ W)


def in_library(run: Run) -> Run:
    """Return a run in which `forward` and `project` are no code of the user's own."""

    def moved(frame: Frame) -> Frame:
        is_theirs = frame.function in ("forward", "project")
        return replace(frame, file=LIBRARY, owner="fancy") if is_theirs else frame

    return replace(run, frames=tuple(map(moved, run.frames)))


DEAR = in_library(record(every_token, costs({"mm": 8.0})))
LEAN = in_library(record(last_tokens, costs({"mm": 1.0})))


def traces_of(step: Program) -> dict[str, LineTrace]:
    """Return a trace of one call of each function."""
    found = {
        name: watch_lines(step, Target(HERE.name, name), root=HERE.parent, hints=source_hints())
        for name in ("forward", "project")
    }
    assert all(found.values())
    return {name: walk for name, walk in found.items() if walk is not None}


def live(mine: LiveProgram | None = None) -> dict[Any, LiveProgram]:
    return {
        "a": mine or LiveProgram(DEAR, {"calls": 1.0}, traces=traces_of(every_token)),
        "b": LiveProgram(LEAN, traces=traces_of(last_tokens)),
    }


def leads_of(a: Run, b: Run, name: str, *, tried: Any = None, expensive: Any = "a") -> list[Lead]:
    sides = comparison_of(a, b)
    return find_leads(make_subject(sides, region_of(sides, name), expensive, tried))


def only(diff: Diff) -> Finding:
    (found,) = diff.findings
    return found


def test_logits_that_are_thrown_away() -> None:
    lead = leads_of(DEAR, LEAN, "mm", tried=live())[0]
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("redundant", "call_path", "logits_to_keep")
    assert (lead.cause.value_a, lead.cause.value_b) == (0, 2)
    assert lead.cause.evidence[0] == THROWN
    assert lead.cause.location_b is not None
    assert lead.cause.location_b.text == "return forward(X, logits_to_keep=2)"
    assert [(change.calls, change.layout) for change in lead.changes] == [(True, ())]


def project_walk(name: str, value: Any) -> LineTrace:
    """Return a trace of `project` with one argument."""
    argument = TraceStep("argument", name, name, name, value, not str(value).startswith("tensor"), None)
    text = "return torch.tanh(x @ W)"
    return LineTrace(LIBRARY, "project", 1, ("def project(x):", text), (TraceLine(2, text, False, (0,)),), (argument,))


def key_of(*inner: LineTrace, forward: bool = True) -> str | None:
    """Return the key if the innermost function has these traces."""
    tried = live()
    for program, walk in zip(tried.values(), inner, strict=True):
        program.traces = {**(program.traces if forward else {}), "project": walk}
    lead = leads_of(DEAR, LEAN, "mm", tried=tried)[0]
    assert (lead.kind, lead.cause.evidence[0]) == ("redundant", THROWN)
    return lead.cause.key


def test_a_tensor_of_another_shape_is_not_a_cause() -> None:
    traces = [project_walk("x", f"tensor({shape}, float32, cpu)") for shape in ("16x32", "2x32")]
    assert key_of(*traces) == "logits_to_keep"
    assert key_of(*traces, forward=False) == "forward", "there is nothing but the call to name"


def test_the_argument_nearest_to_the_operator_is_named() -> None:
    assert key_of(project_walk("rows", 16), project_walk("rows", 2)) == "rows"
    assert key_of(project_walk("rows", 2), project_walk("rows", 2)) == "logits_to_keep"


def test_a_finding_on_logits_names_what_to_keep() -> None:
    found = only(diagnose(DEAR, LEAN, live=live()))
    assert (found.kind, found.cause.key, found.proof.confirmed) == ("redundant", "logits_to_keep", True)
    assert found.cost.delta_j == pytest.approx(7.0)
    assert found.suggestion.startswith("Set logits_to_keep to 2; it is 0")
    assert not diagnose(DEAR, DEAR, live={"a": LiveProgram(DEAR), "b": LiveProgram(DEAR)}).findings


def test_the_side_that_makes_more_may_be_the_second() -> None:
    tried = {
        "a": LiveProgram(LEAN, traces=traces_of(last_tokens)),
        "b": LiveProgram(DEAR, traces=traces_of(every_token)),
    }
    lead = leads_of(LEAN, DEAR, "mm", tried=tried, expensive="b")[0]
    assert (lead.kind, lead.cause.key, lead.cause.evidence[0]) == ("redundant", "logits_to_keep", THROWN)
    assert (lead.cause.value_a, lead.cause.value_b) == (2, 0)


@pytest.mark.parametrize("tried", [{}, {"a": LiveProgram(DEAR, traces=traces_of(every_token))}], ids=["none", "one"])
def test_without_both_programs_the_calls_are_named(tried: Any) -> None:
    lead = leads_of(DEAR, LEAN, "mm", tried=tried)[0]
    assert lead.kind == "redundant" and lead.cause.key != "logits_to_keep"
    assert lead.cause.evidence[:2] == (THROWN, NOT_TRACED)


def test_work_of_the_users_own_lines_is_named_by_its_call() -> None:
    a, b = record(by_hand, costs({"mm": 8.0})), record(by_hand_first, costs({"mm": 1.0}))
    found = only(diagnose(a, b, live={"a": LiveProgram(a, {"calls": 1.0}), "b": LiveProgram(b)}))
    assert (found.kind, found.cause.type, found.cause.key, found.proof.confirmed) == (
        "redundant",
        "call_path",
        "matmul",
        True,
    )
    assert found.cause.evidence == (THROWN,)
    assert found.cause.location_a is not None
    assert found.cause.location_a.text == "return torch.tanh((X @ W)[-2:])"


@pytest.mark.parametrize("expensive", ["a", "b"])
def test_more_numbers_that_are_all_read_are_nothing_thrown_away(expensive: Any) -> None:
    def repeated() -> torch.Tensor:
        with torch.no_grad():
            return torch.exp(X[:8].repeat(2, 1)) @ W

    def once() -> torch.Tensor:
        with torch.no_grad():
            return torch.exp(FEW).repeat(2, 1) @ W

    a, b = record(repeated, costs({"exp": 2.0})), record(once, costs({"exp": 1.0}))
    runs = (a, b) if expensive == "a" else (b, a)
    assert "redundant" not in {lead.kind for lead in by_call(leads_of(*runs, "exp", expensive=expensive))}


def by_call(leads: list[Lead]) -> list[Lead]:
    return [lead for lead in leads if lead.cause.type == "call_path"]


def test_what_both_sides_throw_away_is_no_difference() -> None:
    def before() -> torch.Tensor:
        with torch.no_grad():
            return (X.mul(2) @ W)[-2:]

    def after() -> torch.Tensor:
        with torch.no_grad():
            return (X @ W)[-2:].mul(2)

    a, b = record(before, costs({"mm": 8.0})), record(after, costs({"mm": 1.0}))
    assert by_call(leads_of(a, b, "mm")) == []


def test_the_side_that_makes_less_throws_nothing_away() -> None:
    slow = in_library(record(last_tokens, costs({"mm": 9.0})))
    assert by_call(leads_of(DEAR, slow, "mm", expensive="b")) == []


def test_another_operator_that_makes_more_is_another_way_to_write_it() -> None:
    def added() -> torch.Tensor:
        with torch.no_grad():
            return torch.tanh(torch.addmm(torch.zeros(64), X, W)[-2:])

    a, b = record(added, costs({"addmm": 8.0})), record(by_hand_first, costs({"mm": 1.0}))
    (lead,) = leads_of(a, b, "addmm")
    assert (lead.kind, lead.cause.key) == ("api_misuse", "addmm")


COPIED, GIVEN = X.t().contiguous(), X.t()


def plain() -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(X.t(), -1)


def contiguous() -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(X.t().contiguous(), -1)


def cloned() -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(X.t().clone(memory_format=torch.contiguous_format), -1)


def earlier() -> torch.Tensor:
    with torch.no_grad():
        copy = X.t().contiguous()
        return torch.softmax(copy, -1)


def reshaped() -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(X.t().reshape(-1).view(32, 16), -1)


def copied_again() -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(COPIED.contiguous().clone(), -1)


def given() -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(GIVEN, -1)


def layout_lead(mine: Program, other: Program, **changes: Any) -> Lead:
    a, b = record(mine, costs({"_softmax": 4.0}), **changes), record(other, costs({"_softmax": 1.0}))
    lead = leads_of(a, b, "_softmax")[0]
    assert lead.cause.type == "layout"
    return lead


@pytest.mark.parametrize(
    ("step", "key", "line"),
    [
        (contiguous, "contiguous", "return torch.softmax(X.t().contiguous(), -1)"),
        (cloned, "clone", "return torch.softmax(X.t().clone(memory_format=torch.contiguous_format), -1)"),
        (earlier, "contiguous", "copy = X.t().contiguous()"),
        (reshaped, "strides", "return torch.softmax(X.t().reshape(-1).view(32, 16), -1)"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_copy_that_was_written_is_named_with_its_line(step: Program, key: str, line: str) -> None:
    lead = layout_lead(step, plain)
    assert (lead.kind, lead.cause.key) == ("api_misuse", key)
    assert (lead.cause.value_a, lead.cause.value_b) == ("32x16, contiguous", "32x16, strides 1,32")
    assert lead.cause.location_a is not None and lead.cause.location_a.text == line
    assert [suspect.layout for suspect in lead.changes] == [("strides",), ()], "what is tried is the layout"


def test_a_copy_that_changes_no_layout_is_not_to_blame() -> None:
    """`contiguous` of a contiguous tensor copies nothing, and `clone` keeps strides: the layout was given."""
    lead = layout_lead(copied_again, given)
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "strides")
    assert "given to the step as COPIED" in lead.cause.evidence[0]


def test_a_view_on_a_line_that_also_copies_is_no_copy() -> None:
    def copied_back() -> torch.Tensor:
        with torch.no_grad():
            return torch.softmax(X.contiguous().t(), -1)

    lead = layout_lead(copied_back, contiguous)
    assert (lead.kind, lead.cause.key) == ("api_misuse", "strides")
    assert "made by aten::t" in lead.cause.evidence[0]


def test_a_line_that_was_not_recorded_names_no_copy() -> None:
    lead = layout_lead(contiguous, plain, sources=())
    assert (lead.kind, lead.cause.key) == ("api_misuse", "strides")


@pytest.mark.parametrize(("step", "key"), [(contiguous, "contiguous"), (cloned, "clone")])
def test_the_copy_is_what_to_leave_out(step: Program, key: str) -> None:
    a, b = record(step, costs({"_softmax": 4.0, "clone": 0.0})), record(plain, costs({"_softmax": 1.0}))
    found = only(diagnose(a, b))
    assert (found.cause.type, found.cause.key) == ("layout", key)
    assert found.suggestion.startswith(f"Leave out {key}() (")
    assert "test_discarded_outputs.py:" in found.suggestion
    assert found.suggestion.endswith("the other side reads the tensor without a copy, as 32x16, strides 1,32.")


class Head:
    """Stands for a layer of the user's own, which both programs call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ W)


def picked_late() -> torch.Tensor:
    with torch.no_grad():
        return Head().forward(X)[-2:]


def picked_early() -> torch.Tensor:
    with torch.no_grad():
        return Head().forward(X[-2:])


def test_the_same_call_on_more_rows_is_named_by_the_users_function() -> None:
    comparison = comparison_of(record(picked_late, costs({"mm": 8.0})), record(picked_early, costs({"mm": 1.0})))
    lead = find_leads(make_subject(comparison, region_of(comparison, "mm"), "a"))[0]
    assert (lead.kind, lead.cause.key, lead.cause.evidence[0]) == ("redundant", "Head", THROWN)
    assert "it makes 8.0 times the elements of the other side" in lead.suggestion
