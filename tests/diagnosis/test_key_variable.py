"""The variable that made two programs run different code."""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from joulediff.diagnosis.evidence.calls.key_variable import KeyVariable, find_key_variable
from joulediff.frameworks.framework import source_hints
from joulediff.model.place import Place
from joulediff.pysource.framework_hints import NO_HINTS
from joulediff.pysource.line_trace import LineTrace, Target, TraceLine, TraceStep
from joulediff.pysource.tracing.line_tracer import watch_lines

HERE = Path(__file__)
GPT2 = str(Path("transformers", "models", "gpt2", "modeling_gpt2.py"))
TRANSFORMER = str(Path("torch", "nn", "modules", "transformer.py"))

Program = Callable[[], object]


def trace_lines(step: Program, function: str, line: int | None = None, file: str = HERE.name) -> LineTrace:
    found = watch_lines(step, Target(file, function, line), root=HERE.parent, hints=source_hints())
    assert found is not None
    return found


def compare(a: Program, b: Program, function: str, lines: tuple[int | None, int | None] = (None, None)) -> KeyVariable:
    found = find_key_variable(trace_lines(a, function, lines[0]), trace_lines(b, function, lines[1]))
    assert found is not None
    return found


def line_in(function: Any, text: str) -> int:
    """Return the number of the only line of a function that contains a text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [first + at for at, line in enumerate(lines) if text in line]
    return found


def slow(x: int) -> int:
    return sum([x] * 1)


def fast(x: int) -> int:
    return x


def run(x: int, way: str = "slow") -> int:
    if way == "fast":
        return fast(x)
    return slow(x)


def middle(x: int, **options: Any) -> int:
    return run(x, **options)


def outer(x: int, mode: str) -> int:
    return middle(x, way=mode)


def test_a_literal_three_callers_up_is_the_key() -> None:
    found = compare(lambda: outer(1, "slow"), lambda: outer(1, "fast"), "run")
    assert (found.key, found.kind, found.value_a, found.value_b) == ("mode", "argument", "slow", "fast")
    assert found.place_a is not None and found.place_a.text is not None
    assert "test_a_literal" in found.place_a.function and 'outer(1, "slow")' in found.place_a.text
    assert found.at_a is not None and found.at_a.text == 'if way == "fast":'
    assert found.at_a == found.at_b
    assert found.trail[0].startswith("`way` is 'slow' ↔ 'fast' (test_key_variable.py:")
    assert found.trail[-1].startswith("from `'slow'` ↔ `'fast'`: 'slow' ↔ 'fast' (test_key_variable.py:")


def test_a_default_against_a_literal() -> None:
    found = compare(lambda: run(1), lambda: middle(1, way="fast"), "run")
    assert (found.key, found.value_a, found.value_b) == ("way", "slow", "fast")
    assert found.place_a is not None and found.place_a.function == "run"
    assert found.place_b is not None and "test_a_default" in found.place_b.function


def defaulted(x: int, mode: str | None = None, *, pick: bool = False) -> int:
    if pick:
        mode = "fast"
    if mode == "fast":
        return fast(x)
    return slow(x)


def test_what_decided_that_an_argument_is_replaced_is_the_key() -> None:
    lines = line_in(defaulted, "return slow(x)"), line_in(defaulted, "return fast(x)")
    found = compare(lambda: defaulted(1, "slow"), lambda: defaulted(1, "slow", pick=True), "defaulted", lines)
    assert (found.key, found.value_a, found.value_b) == ("pick", False, True)


class Layer:
    def __init__(self, config: Any, *, flag: bool = False) -> None:
        self.config = config
        self.flag = flag
        self.act = {"slow": slow, "fast": fast}[config.act]
        if config.kind == "new":
            self.norm: Callable[[int], int] = fast
        else:
            self.norm = slow

    def branch(self, x: int) -> int:
        if self.flag:
            return fast(x)
        return slow(x)

    def configured(self, x: int) -> int:
        run_fast = getattr(self.config, "act", None) == "fast"
        return fast(x) if run_fast else slow(x)

    def activate(self, x: int) -> int:
        x = x + 1
        x = self.act(x)
        return x + 1

    def normalise(self, x: int) -> int:
        return self.norm(x)

    def late(self, x: int) -> int:
        why_not = ""
        if x > 100:
            why_not = "too large"
        elif self.config.act == "slow" and all(each for each in (x, x)):
            why_not = "not wanted"
        x = x + 1
        if not why_not:
            return fast(x)
        x = x - 1
        return slow(x)

    def early(self, x: int) -> int:
        if x < 0:
            x = -x
        if self.config.act != "slow":
            return fast(x)
        x = slow(x)
        return x + 1


def layer(act: str = "slow", *, kind: str = "new", flag: bool = False) -> Layer:
    return Layer(SimpleNamespace(act=act, kind=kind), flag=flag)


def test_an_attribute_set_from_an_argument() -> None:
    a, b = layer(), layer(flag=True)
    found = compare(lambda: a.branch(1), lambda: b.branch(1), "Layer.branch")
    assert (found.key, found.kind, found.value_a, found.value_b) == ("Layer.flag", "attribute", False, True)
    assert found.place_a is not None and found.place_a.text == "self.flag = flag"


@pytest.mark.parametrize("method", ["configured", "activate", "late", "early"])
def test_a_configuration_behind_a_ternary_a_table_a_reason_or_an_early_return(method: str) -> None:
    a, b = layer("slow"), layer("fast")
    found = compare(lambda: getattr(a, method)(1), lambda: getattr(b, method)(1), f"Layer.{method}")
    assert (found.key, found.kind, found.value_a, found.value_b) == ("config.act", "config", "slow", "fast")


def test_what_decided_in_init_is_the_key() -> None:
    a, b = layer(kind="old"), layer(kind="new")
    found = compare(lambda: a.normalise(1), lambda: b.normalise(1), "Layer.normalise")
    assert (found.key, found.value_a, found.value_b) == ("config.kind", "old", "new")


def test_a_reason_is_followed_to_the_branch_that_gave_it() -> None:
    """The statements that lead on are below a second branch, which only reads the decision of the first one."""
    a, b = layer("slow"), layer("fast")
    lines = line_in(Layer.late, "return slow(x)"), line_in(Layer.late, "return fast(x)")
    found = compare(lambda: a.late(1), lambda: b.late(1), "Layer.late", lines)
    assert (found.key, found.value_a, found.value_b) == ("config.act", "slow", "fast")
    assert found.at_a is not None and found.at_a.text is not None and found.at_a.text.startswith("elif self.config.act")


def test_an_unrelated_parting_before_does_not_count_where_the_ends_are_known() -> None:
    a, b = layer("slow"), layer("fast")
    lines = line_in(Layer.early, "x = slow(x)"), line_in(Layer.early, "return fast(x)")
    found = compare(lambda: a.early(-1), lambda: b.early(1), "Layer.early", lines)
    assert found.key == "config.act"


TABLE = {"slow": slow, "fast": fast}


def dispatch(x: int, name: str) -> int:
    function = TABLE[name]
    return function(x)


def test_dispatch_through_a_table_leads_to_its_key() -> None:
    line = line_in(dispatch, "return function(x)")
    found = compare(lambda: dispatch(1, "slow"), lambda: dispatch(1, name="fast"), "dispatch", (line, line))
    assert (found.key, found.kind, found.value_a, found.value_b) == ("name", "argument", "slow", "fast")
    assert found.trail[0].startswith(f"`function` is `{__name__}.slow` ↔ `{__name__}.fast`")


def from_environment(x: int) -> int:
    if os.environ.get("JD_FAST") == "1":
        return fast(x)
    return slow(x)


def test_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JD_FAST", raising=False)
    a = trace_lines(lambda: from_environment(1), "from_environment")
    monkeypatch.setenv("JD_FAST", "1")
    found = find_key_variable(a, trace_lines(lambda: from_environment(1), "from_environment"))
    assert found is not None
    assert (found.key, found.kind, found.value_a, found.value_b) == ("JD_FAST", "environment", None, "1")


def counted(values: list[int]) -> int:
    if (count := len(values)) > 2:
        return slow(count)
    return fast(count)


def test_a_walrus() -> None:
    found = compare(lambda: counted([1, 2, 3]), lambda: counted([1]), "counted")
    assert (found.key, found.value_a, found.value_b) == ("values", "(1, 2, 3)", "(1)")
    untold = compare(lambda: counted([*range(99)]), lambda: counted(set()), "counted")  # type: ignore[arg-type]
    assert untold.key == "values"
    longer = trace_lines(lambda: counted([*range(99)]), "counted"), trace_lines(lambda: counted([[]]), "counted")  # type: ignore[list-item]
    found = find_key_variable(*longer)
    assert found is not None
    assert (found.key, found.kind, found.value_a, found.value_b) == ("count", "assignment", 99, 1)


def looped(x: int, times: int) -> int:
    for _ in range(times):
        x = slow(x)
    return x


def test_a_loop_that_runs_longer() -> None:
    found = compare(lambda: looped(1, 3), lambda: looped(1, times=1), "looped")
    assert (found.key, found.value_a, found.value_b) == ("times", 3, 1)


def hidden(x: int, state: list[int]) -> int:
    if state.pop():
        return slow(x)
    return fast(x)


def test_the_unknown_is_said_as_unknown() -> None:
    states = [[*range(20), 1], [*range(20), 0]]
    a, b = (trace_lines(lambda state=state: hidden(1, state), "hidden") for state in states)
    assert [line.text for line in a.lines] != [line.text for line in b.lines]
    assert find_key_variable(a, b) is None


@pytest.mark.parametrize("method", ["branch", "configured", "activate", "normalise", "late", "early"])
def test_equal_programs_have_no_key(method: str) -> None:
    a, b = layer(), layer()
    traces = [trace_lines(lambda each=each: getattr(each, method)(1), f"Layer.{method}") for each in (a, b)]
    assert find_key_variable(*traces) is None


OLD = """
def work(x, mode):
    y = x + 1
    if (mode ==
            "fast"):
        return y
    return y * 2
"""
NEW = """
# A new version: other line numbers, another layout.


def work(x, mode):
    y = x + 1
    if mode == "fast": return y
    return y * 2
"""


def load(folder: Path, text: str) -> ModuleType:
    folder.mkdir()
    path = folder / "library.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_versions_of_a_file_are_compared_by_their_text(tmp_path: Path) -> None:
    old, new = load(tmp_path / "old", OLD), load(tmp_path / "new", NEW)
    target = Target("library.py", "work")
    a = watch_lines(lambda: old.work(1, "slow"), target, root=tmp_path / "old", hints=NO_HINTS)
    b = watch_lines(lambda: new.work(1, "fast"), target, root=tmp_path / "new", hints=NO_HINTS)
    assert a is not None and b is not None
    found = find_key_variable(a, b)
    assert found is not None
    assert (found.key, found.value_a, found.value_b) == ("mode", "slow", "fast")
    assert found.at_a is not None and found.at_b is not None
    assert (found.at_a.line, found.at_b.line) == (4, 7)


def test_an_atom_of_one_side_alone_differs_from_none() -> None:
    step = TraceStep("config", "config.x", "config.x", "config.x", 3, True, Place("m.py", 2, "f"))
    a = LineTrace("m.py", "f", 1, (), (TraceLine(2, "if config.x:", True, (0,)), TraceLine(3, "a()", False)), (step,))
    b = LineTrace("m.py", "f", 1, (), (TraceLine(2, "if config.x:", True), TraceLine(4, "b()", False)), ())
    found = find_key_variable(a, b)
    assert found == KeyVariable(
        "config.x",
        "config",
        3,
        None,
        Place("m.py", 2, "f"),
        None,
        Place("m.py", 2, "f", "if config.x:"),
        Place("m.py", 2, "f", "if config.x:"),
        ("`config.x` is 3 ↔ not there (m.py:2)",),
    )


def gpt2(**settings: Any) -> Program:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 16}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens, **settings)).eval()
    ids = torch.arange(8)[None]
    return lambda: model(ids, use_cache=False).logits


def test_gpt2_activation() -> None:
    a, b = gpt2(activation_function="gelu_new"), gpt2(activation_function="gelu_pytorch_tanh")
    found = find_key_variable(*(trace_lines(each, "GPT2MLP.forward", file=GPT2) for each in (a, b)))
    assert found is not None
    assert (found.key, found.kind) == ("config.activation_function", "config")
    assert (found.value_a, found.value_b) == ("gelu_new", "gelu_pytorch_tanh")
    assert found.at_a is not None and found.at_a.text == "hidden_states = self.act(hidden_states)"
    assert found.place_a is not None and found.place_a.function == "GPT2MLP.__init__"


@pytest.mark.parametrize("known", [False, True])
def test_gpt2_attention(known: bool) -> None:
    modeling = pytest.importorskip("transformers.models.gpt2.modeling_gpt2")
    line = line_in(modeling.GPT2Attention.forward, "= attention_interface(") if known else None
    a, b = gpt2(attn_implementation="eager"), gpt2(attn_implementation="sdpa")
    found = find_key_variable(*(trace_lines(each, "GPT2Attention.forward", line, GPT2) for each in (a, b)))
    assert found is not None
    assert (found.key, found.value_a, found.value_b) == ("config._attn_implementation", "eager", "sdpa")
    assert "eager_attention_forward" in found.trail[0] and "sdpa_attention_forward" in found.trail[0]
    assert found.trail[1].startswith("from `self.config._attn_implementation`: 'eager' ↔ 'sdpa'")


def test_weights_that_attention_returns_unasked() -> None:
    """A default of one function, passed on by another, against a literal in the user's code."""
    torch = pytest.importorskip("torch")
    model, x = torch.nn.MultiheadAttention(16, 2, batch_first=True), torch.randn(2, 4, 16)
    file = str(Path("torch", "nn", "functional.py"))
    a = trace_lines(lambda: model(x, x, x), "multi_head_attention_forward", file=file)
    b = trace_lines(lambda: model(x, x, x, need_weights=False), "multi_head_attention_forward", file=file)
    found = find_key_variable(a, b)
    assert found is not None
    assert (found.key, found.value_a, found.value_b) == ("need_weights", True, False)
    assert found.place_a is not None and found.place_a.function == "MultiheadAttention.forward"
    assert found.place_b is not None and found.place_b.file == HERE.name


@pytest.mark.parametrize("known", [False, True])
def test_the_fast_path_of_an_encoder_layer(known: bool) -> None:
    torch = pytest.importorskip("torch")
    model, x = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True).eval(), torch.randn(2, 4, 16)

    def without_grad() -> object:
        with torch.no_grad():
            return model(x)

    forward = torch.nn.TransformerEncoderLayer.forward
    marks = "+ self._sa_block(x, src_mask", "return torch._transformer_encoder_layer_fwd("
    lines = [line_in(forward, mark) if known else None for mark in marks]
    a = trace_lines(lambda: model(x), "TransformerEncoderLayer.forward", lines[0], TRANSFORMER)
    b = trace_lines(without_grad, "TransformerEncoderLayer.forward", lines[1], TRANSFORMER)
    found = find_key_variable(a, b)
    assert found is not None
    assert (found.key, found.kind, found.value_a, found.value_b) == ("torch.is_grad_enabled", "call", True, False)
    assert found.at_a is not None and found.at_a.text is not None and "torch.is_grad_enabled()" in found.at_a.text
