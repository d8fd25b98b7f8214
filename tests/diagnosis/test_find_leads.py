"""The causes that the evidence points to, the strongest first, and the changes that would test them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis_builders import LiveProgram, comparison_of, costs, draw, record, region_of
from invented import Tensor, exp, gelu, gelu_decomposed, softmax, tanh
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.calls.call_path import NOT_TRACED, call_lead
from joulediff.diagnosis.evidence.find_leads import EVIDENCE, find_leads
from joulediff.diagnosis.lead import Lead, Subject, add_evidence, make_cause, make_subject
from joulediff.diagnosis.trials.each_lead import join_settings
from joulediff.model.finding import Region
from joulediff.model.pair import Pair
from joulediff.model.place import Place
from joulediff.model.run import Frame, Run, SourceText
from joulediff.pysource.line_trace import LineTrace, TraceLine, TraceStep

X, W = draw(16, 32), draw(32, 32, seed=1)
LAID = Tensor(W.t().contiguous().t().array, name="LAID")
WIDE = X.to("float64")
TF32 = {
    "torch.backends.cuda.matmul.allow_tf32": True,
    "torch.float32_matmul_precision": "high",
    "torch.backends.cuda.matmul.fp32_precision": "tf32",
}
IEEE = {
    "torch.backends.cuda.matmul.allow_tf32": False,
    "torch.float32_matmul_precision": "highest",
    "torch.backends.cuda.matmul.fp32_precision": "ieee",
}


def product() -> Tensor:
    return tanh(X @ W)


def by_hand() -> Tensor:
    return gelu_decomposed(X @ W)


def built_in() -> Tensor:
    return gelu(X @ W)


def subject_of(
    steps: tuple[Callable[[], Any], Callable[[], Any]], op: str, *, kind: str = "equal", **options: Any
) -> Subject:
    a = record(steps[0], costs({"mm": 4.0}), **options.get("a", {}))
    b = record(steps[1], costs({"mm": 2.0}), **options.get("b", {}))
    sides = comparison_of(a, b)
    return make_subject(sides, region_of(sides, op, kind), options.get("expensive", "a"))


def leads_of(steps: tuple[Callable[[], Any], Callable[[], Any]], op: str, **options: Any) -> list[Lead]:
    return find_leads(subject_of(steps, op, **options))


def with_settings(
    mine: dict[str, Any], others: dict[str, Any], *, expensive: str = "a", places: dict[str, str] | None = None
) -> list[Lead]:
    a, b = {"settings": mine, "set_places": places or {}}, {"settings": others}
    return leads_of((product, product), "mm", a=a, b=b, expensive=expensive)


def test_one_switch_of_three_names_is_one_lead() -> None:
    (lead,) = with_settings(IEEE, TF32)
    assert lead.kind == "misconfiguration"
    assert lead.cause.key == "torch.backends.cuda.matmul.allow_tf32"
    assert (lead.cause.value_a, lead.cause.value_b) == (False, True)
    (change,) = lead.changes
    assert dict(change.settings) == {"torch.backends.cuda.matmul.allow_tf32": True}


def test_a_switch_is_named_as_the_program_names_it() -> None:
    (lead,) = with_settings(IEEE, TF32, places={"torch.float32_matmul_precision": "hf.py:3:build"})
    assert lead.cause.key == "torch.float32_matmul_precision"
    assert lead.cause.location_a == Place("hf.py", 3, "build")
    assert lead.cause.location_b is not None and lead.cause.location_b.function == "product"


def test_a_setting_takes_the_cheap_sides_value() -> None:
    (lead,) = with_settings({"torch.x": 1}, {"torch.x": 2}, expensive="b")
    assert dict(lead.changes[0].settings) == {"torch.x": 1}


def test_two_switches_are_two_leads_and_one_if_they_work_together() -> None:
    leads = with_settings({"torch.x": 1, "torch.y": 3}, {"torch.x": 2, "torch.y": 4})
    assert [lead.cause.key for lead in leads] == ["torch.x", "torch.y"]
    joined = join_settings(leads, "a").cause
    assert (joined.key, joined.value_a, joined.value_b) == ("torch.x and torch.y", "1 and 3", "2 and 4")
    assert len(joined.evidence) == 2


def test_the_grad_mode_is_no_lead() -> None:
    (lead,) = with_settings({"torch.grad_enabled": True}, {"torch.grad_enabled": False})
    assert lead.kind == "unknown"


def test_the_environment_is_a_lead_that_cannot_be_tried() -> None:
    leads = with_settings({"env.X": "1", "torch.two": 1}, {"env.X": "2", "torch.two": 2})
    assert [(lead.cause.key, bool(lead.changes)) for lead in leads] == [("torch.two", True), ("env.X", False)]
    assert leads[1].kind == "misconfiguration"
    assert any("cannot be changed at run time" in text for text in leads[1].cause.evidence)


def test_settings_of_the_compiler_are_leads_for_compiled_operators_alone() -> None:
    settings = ({"torch._dynamo.config.cache_size_limit": 8}, {"torch._dynamo.config.cache_size_limit": 64})
    (lead,) = with_settings(*settings)
    assert lead.kind == "unknown"
    subject = subject_of((product, product), "mm", a={"settings": settings[0]}, b={"settings": settings[1]})
    comparison = subject.comparison
    compiled = replace(comparison.a, ops=tuple(replace(op, compiled=True) for op in comparison.a.ops))
    (lead,) = find_leads(replace(subject, comparison=replace(comparison, a=compiled)))
    assert lead.cause.key == "torch._dynamo.config.cache_size_limit"


def test_variables_of_another_device_are_no_leads() -> None:
    on_gpu = with_settings({"env.CUBLAS_WORKSPACE_CONFIG": ":0:0"}, {"env.CUBLAS_WORKSPACE_CONFIG": ":16:8"})
    assert [lead.cause.key for lead in on_gpu] == ["env.CUBLAS_WORKSPACE_CONFIG"]
    host = {"device": "cpu", "settings": {"env.CUBLAS_WORKSPACE_CONFIG": ":0:0"}}
    (lead,) = leads_of((product, product), "mm", a=host, b={"device": "cpu"})
    assert lead.kind == "unknown"


def test_different_versions_are_reported_if_no_cause_is_known() -> None:
    (lead,) = with_settings(
        {"package.torch": "2.11", "package.numpy": "2"}, {"package.torch": "2.13", "package.numpy": "2"}
    )
    assert lead.kind == "unknown"
    assert "torch is 2.11 in A and 2.13 in B" in lead.cause.evidence


def test_the_same_call_with_the_same_inputs_and_settings_is_unknown() -> None:
    (lead,) = with_settings({}, {})
    assert lead.kind == "unknown"
    assert lead.cause.type == "kernel" and lead.cause.key is None
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "return tanh(X @ W)"


def test_strides_come_before_settings() -> None:
    def laid() -> Tensor:
        return tanh(X @ LAID)

    leads = leads_of((laid, product), "mm", a={"settings": IEEE}, b={"settings": TF32})
    assert [lead.cause.type for lead in leads] == ["layout", "setting"]
    first = leads[0]
    assert first.kind == "misconfiguration" and first.cause.key == "strides"
    assert "given to the step as LAID" in first.cause.evidence[0]
    assert [(s.layout, s.calls) for s in first.changes] == [(("strides",), False), ((), True)]


def test_a_wide_type_that_was_given() -> None:
    def wide() -> Tensor:
        return tanh(WIDE)

    def narrow() -> Tensor:
        return tanh(X)

    (lead,) = leads_of((wide, narrow), "tanh")
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "dtype")
    assert (lead.cause.value_a, lead.cause.value_b) == ("float64", "float32")
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "return tanh(WIDE)"


def test_a_layout_made_within_the_step_is_api_misuse() -> None:
    def permuted() -> Tensor:
        return softmax(X.t())

    def copied() -> Tensor:
        return softmax(X.t().contiguous())

    first = leads_of((permuted, copied), "_softmax")[0]
    assert (first.kind, first.cause.key) == ("api_misuse", "strides")
    assert "made by aten::t" in first.cause.evidence[0]


def test_layouts_are_those_of_the_same_operator() -> None:
    """The costliest operators of the two sides may be different ones, whose inputs are unrelated."""
    a = record(by_hand, lambda op: {"aten::mul": 9.0}.get(op.name, 1.0))
    b = record(by_hand, lambda op: {"aten::tanh": 9.0}.get(op.name, 1.0))
    ops = tuple(op.id for op in a.ops if op.name in ("aten::mul", "aten::tanh"))
    region = replace(comparison_of(a, b).regions[0], kind="equal", a=ops, b=ops)
    values = {v for op in b.ops if op.name == "aten::tanh" for v in op.inputs}
    wide = tuple(replace(v, dtype="float64") if v.id in values else v for v in b.values)
    leads = find_leads(make_subject(Comparison(a, replace(b, values=wide), [region]), region, "a"))
    assert [lead.cause.type for lead in leads] == ["kernel"]


def test_other_calls_are_the_cause_where_the_code_is_the_users_own() -> None:
    (lead,) = leads_of((by_hand, built_in), "gelu")
    assert (lead.kind, lead.cause.type) == ("api_misuse", "call_path")
    assert lead.cause.value_b == "gelu"
    assert lead.cause.location_b is not None and "gelu(X @ W)" in (lead.cause.location_b.text or "")
    assert lead.changes[0].calls


def test_work_that_the_other_side_does_without() -> None:
    def copied() -> Tensor:
        return softmax(X.t().contiguous())

    def plain() -> Tensor:
        return softmax(X.t())

    (lead,) = leads_of((copied, plain), "clone", kind="movement")
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("redundant", "redundancy", "contiguous")
    assert (lead.cause.value_a, lead.cause.value_b) == ("contiguous", None)
    assert lead.cause.location_b is None
    assert "moves data" in lead.cause.evidence[0]
    (lead,) = leads_of((plain, copied), "clone", kind="movement", expensive="b")
    assert (lead.cause.value_a, lead.cause.value_b) == (None, "contiguous")


def test_a_result_that_nothing_reads() -> None:
    def careless() -> Tensor:
        exp(X)
        return tanh(X)

    def careful() -> Tensor:
        return tanh(X)

    (lead,) = leads_of((careless, careful), "exp", kind="unused")
    assert lead.kind == "redundant" and lead.cause.key == "exp"
    assert "nothing reads" in lead.cause.evidence[0]


MODEL = "transformers/modeling.py"


def through_library(run: Run, function: str, line: int, callee: str, settings: dict[str, Any]) -> Run:
    """Return a run whose operators are called by a library: from one function, at a line, to a callee."""
    path = (
        Frame("hf.py", 3, "step", None, None),
        Frame(MODEL, line, function, "transformers", 0),
        Frame(MODEL, 500, callee, "transformers", 1),
    )
    return replace(run, frames=path, ops=tuple(replace(op, frame=2) for op in run.ops), settings=settings, sources=())


def library_subject(configs: tuple[dict[str, Any], dict[str, Any]], lines: tuple[int, int] = (30, 34)) -> Subject:
    runs = [
        through_library(record(step, costs({})), "forward", line, name, config)
        for step, line, name, config in zip((by_hand, built_in), lines, ("eager", "fused"), configs, strict=True)
    ]
    sides = comparison_of(runs[0], runs[1])
    return make_subject(sides, region_of(sides, "gelu"), "a")


EAGER = {"model.m.config._attn_implementation": "eager", "model.m.config.n": 4}
SDPA = {"model.m.config._attn_implementation": "sdpa", "model.m.config.n": 4}


def test_the_only_entry_of_a_configuration_that_differs() -> None:
    (lead,) = find_leads(library_subject((EAGER, SDPA)))
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "config._attn_implementation")
    assert (lead.cause.value_a, lead.cause.value_b) == ("eager", "sdpa")
    assert any("both run forward" in text for text in lead.cause.evidence)
    assert NOT_TRACED in lead.cause.evidence


def test_several_entries_point_to_none_of_them() -> None:
    (lead,) = find_leads(library_subject((EAGER, {**SDPA, "model.m.config.n": 8})))
    assert lead.kind == "api_misuse" and lead.cause.type == "call_path"


@pytest.mark.parametrize(("owner", "key", "other"), [("torch", "mul", "gelu"), ("zoo", "_sorting", "_scanning")])
def test_private_functions_of_a_framework_are_no_cause(owner: str, key: str, other: str) -> None:
    """`torch.unique` goes to `_return_inverse`: a reader knows only the former. A model has its code to search."""
    runs = []
    for step, line, name, text in (
        (by_hand, 30, "_sorting", "x = lib.mul(key)"),
        (built_in, 34, "_scanning", "x = lib.gelu(key)"),
    ):
        run = through_library(record(step, costs({})), "forward", line, name, {})
        frames = tuple(each if each.owner is None else replace(each, owner=owner) for each in run.frames)
        runs.append(replace(run, frames=frames, sources=(SourceText("hf.py", 3, text),)))
    sides = comparison_of(*runs)
    (lead,) = find_leads(make_subject(sides, region_of(sides, "gelu"), "a"))
    assert (lead.cause.key, lead.cause.value_b) == (key, other)


def trace_lines(value: bool, line: int) -> LineTrace:
    decision = TraceStep("config", "self.config.fused", "config.fused", "self.config.fused", value, True, None)
    lines = (TraceLine(29, "if self.config.fused:", True, (0,)), TraceLine(line, f"return way_{line}(x)", False))
    return LineTrace(MODEL, "forward", 28, ("def forward(self, x):",), lines, (decision,), led=1)


def test_line_by_line_the_variable_that_decided_is_found() -> None:
    subject = library_subject((EAGER, {**SDPA, "model.m.config.n": 8}))
    sides = subject.comparison
    live = {
        "a": LiveProgram(sides.a, traces={"forward": trace_lines(False, 30)}),
        "b": LiveProgram(sides.b, traces={"forward": trace_lines(True, 34)}),
    }
    (lead,) = find_leads(replace(subject, live=live))
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "config.fused")
    assert (lead.cause.value_a, lead.cause.value_b) == (False, True)


def test_a_function_that_did_not_run_again_leaves_the_calls() -> None:
    subject = library_subject((EAGER, {**SDPA, "model.m.config.n": 8}))
    live = {"a": LiveProgram(subject.comparison.a), "b": LiveProgram(subject.comparison.b)}
    (lead,) = find_leads(replace(subject, live=live))
    assert lead.kind == "api_misuse"
    assert any("did not run again" in text for text in lead.cause.evidence)


@pytest.mark.parametrize("expensive", ["a", "b"])
def test_there_is_always_a_lead(expensive: Any) -> None:
    a, b = record(by_hand, costs({})), record(built_in, costs({}))
    sides = comparison_of(a, b)
    subjects = [make_subject(sides, region, expensive) for region in sides.regions]
    subjects = [subject for subject in subjects if subject.op(expensive) is not None]
    assert subjects
    for subject in subjects:
        assert find_leads(subject)


def test_evidence_is_added_at_the_end() -> None:
    (lead,) = with_settings({}, {})
    assert add_evidence(lead.cause, "more").evidence == (*lead.cause.evidence, "more")


def shared_line(x: Tensor) -> Tensor:
    """Stands for a line that both programs share."""
    return in_layers(x)


def in_layers(x: Tensor) -> Tensor:
    return tanh(x @ W)


def test_the_same_call_in_one_line_is_no_suggestion() -> None:
    """Both programs run the same line on different inputs, so no other way to write it can be suggested."""
    padded = Tensor(np.concatenate([X.array, X.array]))
    a = record(lambda: shared_line(padded), costs({"mm": 4.0}))
    b = record(lambda: shared_line(X), costs({"mm": 2.0}))
    ops = tuple(op.id for op in a.ops)
    region = Region(0, "equal", ops, ops, (), ())
    text = call_lead(make_subject(Comparison(a, b, [region]), region, "a"), ()).suggestion
    assert text.startswith("The call (tests/diagnosis/test_find_leads.py:")
    assert text.endswith("is the same on both sides: mm reads 32x32 float32 in A and 16x32 float32 in B.")
    assert "as the other side does" not in text


def many_operators(x: Tensor) -> Tensor:
    for _ in range(4):
        x = exp(tanh(x)) * 0.5
    return x


def test_no_list_of_operators_is_suggested_as_a_call() -> None:
    a = record(lambda: many_operators(X), costs({}))
    b = record(lambda: many_operators(X * 1.0), costs({}))
    region = Region(0, "equal", tuple(op.id for op in a.ops), tuple(op.id for op in b.ops), (), ())
    subject = make_subject(Comparison(a, b, [region]), region, "a")
    elsewhere = tuple(
        replace(frame, line=frame.line + 1) if frame.function == "many_operators" else frame for frame in b.frames
    )
    subject = replace(subject, comparison=Comparison(a, replace(b, frames=elsewhere, sources=()), [region]))
    lead = call_lead(subject, ())
    assert lead.cause.value_b == "mul ×5, tanh ×4, exp ×4"
    assert lead.suggestion.startswith("Use the implementation at tests/diagnosis/test_find_leads.py:")
    assert "×" not in lead.suggestion


def test_evidence_is_one_list_of_functions_of_a_subject() -> None:
    subject = subject_of((product, product), "mm")
    assert [find(subject) for find in EVIDENCE] == [[]] * len(EVIDENCE)


def test_a_kind_of_evidence_is_one_function_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_moon_phase(subject: Subject) -> list[Lead]:
        cause = make_cause("state", "moon", Pair("full", "new"), subject.places, ("the moon is full in A",))
        return [Lead("misconfiguration", cause, (), "Wait for the new moon.")]

    monkeypatch.setattr("joulediff.diagnosis.evidence.find_leads.EVIDENCE", (*EVIDENCE, find_moon_phase))
    a, b = record(product, costs({"mm": 9.0}), kernel=lambda op: f"slow_{op.name}"), record(product, costs({"mm": 2.0}))
    (found,) = diagnose(a, b).findings
    assert (found.kind, found.cause.key, found.suggestion) == ("misconfiguration", "moon", "Wait for the new moon.")


class Activation:
    """A layer of a library, from several operators."""

    def forward(self, x: Tensor) -> Tensor:
        return gelu_decomposed(x)


class Model:
    """A whole model of a library: most of its work is the product."""

    def forward(self, x: Tensor) -> Tensor:
        return Activation().forward(x @ W)


def by_model() -> Tensor:
    return Model().forward(X)


@pytest.mark.parametrize(("product_j", "named"), [(40.0, "Activation"), (0.1, "Model")])
def test_a_call_is_named_by_the_function_that_holds_the_work(product_j: float, named: str) -> None:
    """A model that does much other work is no name of what differs."""

    def moved(frame: Frame) -> Frame:
        is_theirs = frame.function.endswith(".forward")
        return replace(frame, file="fancy/models.py", owner="fancy") if is_theirs else frame

    energies = {"mm": product_j, **dict.fromkeys(("mul", "add", "tanh", "pow"), 1.0)}
    a = record(by_model, costs(energies))
    a = replace(a, frames=tuple(map(moved, a.frames)))
    sides = comparison_of(a, record(built_in, costs({"mm": product_j, "gelu": 1.0})))
    lead = call_lead(make_subject(sides, region_of(sides, "gelu"), "a"), ())
    assert lead.cause.key == named
