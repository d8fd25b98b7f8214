"""The captured pass records the arguments of each operator, its place in the program, and its modes."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from joulediff.frameworks.torch.capture.arguments import Encoder, decode
from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.frameworks.torch.models import clean_name, find_holdings
from joulediff.frameworks.torch.replay.rebuild import find_function
from joulediff.frameworks.torch.tensor_tree import named_tensors
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Op


def names(found: Captured) -> list[str]:
    return [op.name for op in found.ops]


def first(found: Captured, name: str) -> Op:
    return next(op for op in found.ops if op.name == name)


def arguments(op: Op) -> tuple[list[Any], dict[str, Any]]:
    plain = json.loads(op.arguments)
    return plain["args"], plain["kwargs"]


# --- Operators and arguments. ---


def test_operators_are_in_order_with_all_their_arguments() -> None:
    x, w, b = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)

    def step() -> torch.Tensor:
        y = nn.functional.linear(x, w, b)
        z = torch.cat([y, y.relu()], dim=1)
        return torch.add(z.clamp(min=-1.5), z, alpha=2).to(torch.float16).sum(dim=(0, 1), keepdim=True)

    found = capture_step(step)
    assert names(found) == [
        f"aten::{name}" for name in ("t", "addmm", "relu", "cat", "clamp", "add", "_to_copy", "sum")
    ]
    assert arguments(first(found, "aten::cat")) == ([[{"tensor": 0}, {"tensor": 1}], 1], {})
    assert first(found, "aten::cat").inputs == (*first(found, "aten::relu").inputs, *first(found, "aten::relu").outputs)
    assert arguments(first(found, "aten::clamp")) == ([{"tensor": 0}, -1.5], {})
    assert arguments(first(found, "aten::add"))[1] == {"alpha": 2}
    assert arguments(first(found, "aten::_to_copy"))[1] == {"dtype": {"dtype": "float16"}}
    assert arguments(first(found, "aten::sum"))[0][1:] == [[0, 1], True]
    assert first(found, "aten::sum").overload == "dim_IntList"


def test_values_tell_shape_strides_type_and_device() -> None:
    x = torch.arange(24, dtype=torch.int16).view(4, 6)
    found = capture_step(lambda: x[1:, ::2].t().unsqueeze(1).expand(3, 5, 3))
    value = found.values[found.outputs[0][1]]
    assert (value.shape, value.strides, value.offset) == ((3, 5, 3), (2, 0, 6), 6)
    assert (value.dtype, value.device, value.repeats) == ("int16", "cpu", 5)


def test_the_same_arguments_are_one_text() -> None:
    x = torch.randn(3)
    found = capture_step(lambda: [x.add(1), x.add(1), x.add(1.0), x.add(True)])
    texts = [op.arguments for op in found.ops]
    assert texts[0] is texts[1]
    assert len(set(texts)) == 3, "1, 1.0 and True are not the same"


@pytest.mark.parametrize(
    "value",
    [
        *(0, 0.0, -0.0, 1, -3, 2**40, 0.1, 1e-300, math.inf, -math.inf, True, False, None, "mean"),
        *(1 + 2j, complex(math.inf, -0.0), [1, 2], [], [[1], [2, 3]], [None, True], torch.float8_e5m2, torch.int64),
        *(torch.strided, torch.sparse_coo, torch.channels_last, torch.device("cpu"), torch.device("cuda", 3)),
        torch.per_channel_affine,
    ],
    ids=repr,
)
def test_arguments_come_back_as_they_were(value: Any) -> None:
    text, tensors = Encoder().arguments((value,), {"word": value})
    args, kwargs = decode(text, tensors)
    assert repr(args) == repr([value])
    assert repr(kwargs) == repr({"word": value})
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_zeros_of_either_sign_stay_apart() -> None:
    encoder = Encoder()
    assert encoder.arguments((0.0,), {})[0] != encoder.arguments((-0.0,), {})[0]
    assert encoder.arguments((0,), {})[0] != encoder.arguments((False,), {})[0]


def test_nan_comes_back() -> None:
    (value,), _ = decode(Encoder().arguments((math.nan,), {})[0], [])
    assert math.isnan(value)


def test_tensors_in_lists_and_tuples_are_counted_in_order() -> None:
    pair = namedtuple("pair", "a b")
    x, y, z = (torch.ones(n) for n in (1, 2, 3))
    text, tensors = Encoder().arguments(([x, None, y], 5), {"more": pair(z, x)})
    assert [tensor.numel() for tensor in tensors] == [1, 2, 3, 1]
    args, kwargs = decode(text, tensors)
    assert args[0][0] is x
    assert args[0][1] is None
    assert kwargs["more"] == [z, x]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"args":1,"kwargs":{}}', '{"args":[{"tensor":9}],"kwargs":{}}', "NaN"),
        *('{"args":[{"dtype":"nn"}],"kwargs":{}}', '{"args":[{"layout":"float32"}],"kwargs":{}}'),
        *('{"args":[{"a":1,"b":2}],"kwargs":{}}', '{"args":' + "[" * 50 + "]" * 50 + ',"kwargs":{}}'),
        *('{"args":[{"opaque":"Thing"}],"kwargs":{}}', '{"args":[{"complex":[1]}],"kwargs":{}}', "[" * 2_000_000),
    ],
    ids=lambda text: text[:30],
)
def test_a_text_from_elsewhere_is_refused_in_words(text: str) -> None:
    with pytest.raises(JoulediffError):
        decode(text, [])


@pytest.mark.parametrize("name", ["aten::from_file", "aten::no_such", "triton::kernel", "os.system", "aten::__class__"])
def test_operators_that_are_no_computation_are_not_built_again(name: str) -> None:
    x = torch.randn(2)
    op = capture_step(lambda: x + 1).ops[0]
    values = {slot: getattr(op, slot) for slot in Op.__slots__}
    with pytest.raises(JoulediffError):
        find_function(Op(**{**values, "name": name, "overload": "default"}))


def test_results_that_are_no_tensors_are_kept() -> None:
    x = torch.tensor(2.5)
    found = capture_step(lambda: (x.item(), torch.equal(x, x)))
    assert [(op.name, op.returns) for op in found.ops] == [
        ("aten::_local_scalar_dense", "2.5"),
        ("aten::equal", "true"),
    ]


# --- Modules. ---


class Block(nn.Module):
    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.act = shared
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc(x)) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        act = nn.GELU()
        self.h = nn.ModuleList([Block(act), Block(act)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.h:
            x = block(x)
        return x * 2


def test_module_paths_of_nested_and_shared_modules() -> None:
    model, x = Net(), torch.randn(2, 4)
    found = capture_step(lambda: model(x) - 1)
    assert [(op.name, op.module, op.module_type) for op in found.ops if op.name not in ("aten::t", "aten::addmm")] == [
        ("aten::gelu", "h.0.act", "GELU"),
        ("aten::add", "h.0", "Block"),
        ("aten::gelu", "h.0.act", "GELU"),  # shared: known by its first place
        ("aten::add", "h.1", "Block"),
        ("aten::mul", "", "Net"),
        ("aten::sub", None, None),
    ]


def test_two_models_have_names_of_their_own() -> None:
    teacher, student, x = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3)), torch.randn(2, 3)
    found = capture_step(lambda: teacher(x) - student(x))
    assert {op.module for op in found.ops if op.name == "aten::addmm"} == {"teacher", "student.0"}
    assert {v.name for v in found.values if v.kind == "parameter"} >= {"teacher.weight", "student.0.bias"}


def test_a_model_that_the_step_makes_is_named_by_its_class() -> None:
    x = torch.randn(2, 3)
    found = capture_step(lambda: nn.Sequential(nn.Linear(3, 3))(x))
    assert first(found, "aten::addmm").module == "Sequential.0"


def test_a_module_is_left_when_it_fails() -> None:
    class Failing(nn.Module):
        def __init__(self, error: type[BaseException]) -> None:
            super().__init__()
            self.error = error
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner(x)
            raise self.error

    outer = nn.ModuleDict({"a": Failing(ValueError), "b": Failing(KeyboardInterrupt), "c": nn.Linear(3, 3)})
    x = torch.randn(2, 3)

    def step() -> torch.Tensor:
        for name in ("a", "b"):
            with suppress(ValueError, KeyboardInterrupt):
                outer[name](x)
        return outer["c"](x) + 1

    found = capture_step(step)
    assert [op.module for op in found.ops if op.name == "aten::addmm"] == ["a.inner", "b.inner", "c"]


def test_a_module_that_catches_an_interrupt_is_left_as_a_whole() -> None:
    class Interrupted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    class Patient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Interrupted()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with suppress(KeyboardInterrupt):
                self.inner(x)
            return x

    model, x = Patient(), torch.randn(3)
    assert [op.module for op in capture_step(lambda: model(x) + 1).ops] == [None]


def test_hooks_of_the_user_run_inside() -> None:
    model, x, calls = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True), []
    model.register_forward_pre_hook(lambda *_: calls.append("before"))
    model.register_forward_hook(lambda _m, _a, out: (calls.append("after"), out.neg())[1])
    model.register_full_backward_hook(lambda *_: calls.append("backward"))
    expected = model(x)
    expected.sum().backward()
    assert calls == ["before", "after", "backward"]
    found: list[torch.Tensor] = []

    def step() -> None:
        found.append(model(x))
        found[0].sum().backward()

    assert "aten::neg" in names(capture_step(step))
    assert calls == ["before", "after", "backward"] * 2
    assert torch.equal(found[0], expected)


# --- Phases. ---


def test_forward_backward_and_optimizer() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    found = capture_step(step)
    phases = [op.phase for op in found.ops]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    backward = first(found, "aten::tanh_backward")
    assert backward.forward == first(found, "aten::tanh").id
    assert (backward.module, backward.module_type) == ("1", "Tanh")
    assert {op.module for op in found.ops if op.phase == "optimizer"} == {None}
    assert {v.name for v in found.values if v.name and v.name.startswith("Adam.exp_avg.")} == {
        f"Adam.exp_avg.{name}" for name, _ in model.named_parameters()
    }
    assert set(found.changed) >= {"0.weight", "Adam.step.2.bias"}


def test_an_optimizer_that_fails_is_over() -> None:
    parameter = nn.Parameter(torch.ones(3))

    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            raise ValueError("no")

    optimizer, x = Failing([parameter], lr=0.1), torch.ones(3)
    parameter.grad = torch.ones(3)

    def step() -> torch.Tensor:
        with suppress(ValueError):
            optimizer.step()
        return x * 2

    found = capture_step(step)
    assert first(found, "aten::mul").phase == "forward"
    assert found.ops[0].phase == "optimizer"


def test_a_closure_that_an_optimizer_calls_is_forward_and_backward() -> None:
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    found = capture_step(lambda: optimizer.step(closure))
    assert first(found, "aten::addmm").phase == "forward"
    assert {op.phase for op in found.ops} == {"forward", "backward", "optimizer"}


def test_a_graph_from_before_the_step_has_no_forward_operators() -> None:
    w = torch.randn(3, requires_grad=True)
    loss, x = (w * 2).sum(), torch.randn(3)

    def step() -> None:
        x.add(1)
        loss.backward()

    found = capture_step(step)
    assert [op.forward for op in found.ops if op.phase == "backward"] == [None] * sum(
        op.phase == "backward" for op in found.ops
    )


def test_second_derivatives_belong_to_the_operator_that_is_derived() -> None:
    x = torch.randn(3, requires_grad=True)

    def step() -> torch.Tensor:
        (g,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    found = capture_step(step)
    cos = first(found, "aten::cos")
    assert (cos.phase, cos.forward) == ("backward", first(found, "aten::sin").id)
    assert any(op.forward == cos.id for op in found.ops if op.name == "aten::sin" and op.phase == "backward")


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_operators_of_checkpointing_are_in_the_backward_phase(reentrant: bool) -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid()), torch.randn(2, 3, requires_grad=True)

    def step() -> None:
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    found = capture_step(step)
    once, again = (op for op in found.ops if op.name == "aten::sigmoid")
    assert (once.phase, once.module) == ("forward", "1")
    assert (again.phase, again.module, again.forward) == ("backward", "1", None)
    gradient = first(found, "aten::sigmoid_backward")
    assert gradient.module == "1"
    assert gradient.forward in (once.id, again.id)


# --- The state an operator runs in. ---


def test_grad_and_inference_mode_are_reported() -> None:
    x = torch.randn(2, 3)
    linear = nn.Linear(3, 3)

    def step() -> None:
        linear(x)
        with torch.no_grad():
            linear(x)
        with torch.inference_mode():
            linear(x)

    found = capture_step(step)
    assert names(found) == ["aten::t", "aten::addmm"] * 3, "composite operators are taken apart in every mode"
    assert [(op.grad, op.inference) for op in found.ops[1::2]] == [(True, False), (False, False), (False, True)]


def test_autocast_is_reported_where_it_is_on() -> None:
    x = torch.randn(3, 3)

    def step() -> None:
        x.mm(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x.mm(x)
            with torch.autocast("cpu", enabled=False):
                x.mm(x)
        decorated()

    @torch.autocast("cpu", dtype=torch.float16)
    def decorated() -> None:
        x.mm(x)

    found = capture_step(step)
    assert [op.autocast for op in found.ops if op.name == "aten::mm"] == [None, "cpu bfloat16", None, "cpu float16"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        around = capture_step(lambda: x.mm(x))
    assert {op.autocast for op in around.ops} == {"cpu bfloat16"}


def test_cpp_frames_come_on_request() -> None:
    x = torch.randn(3)
    assert capture_step(lambda: x + 1).ops[0].cpp is None
    shown = capture_step(lambda: x + 1, cpp=True).ops[0].cpp
    assert shown is not None
    assert "at::_ops::add" in shown


# --- Compiled programs. ---


# torch 2.13's compiler looks at the gradients of every tensor and hides what that says in a way that pytest undoes.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_programs_are_captured_as_they_are_written() -> None:
    x, model = torch.randn(2, 3), torch.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), backend="eager")
    function = torch.compile(lambda a: a.sin() + 1, backend="eager")

    def step() -> torch.Tensor:
        y = function(model(x * 3)) - 1
        y.sum().backward()
        return y

    step()
    found = capture_step(step)
    compiled = {op.name for op in found.ops if op.compiled and op.phase == "forward"}
    assert compiled - {"aten::detach"} == {"aten::t", "aten::addmm", "aten::relu", "aten::sin", "aten::add"}
    assert [op.compiled for op in found.ops if op.name in ("aten::sub",)] == [False]
    assert first(found, "aten::threshold_backward").compiled
    assert first(found, "aten::addmm").module == "0"
    assert found.compiled_modules == ("",)
    assert {v.name for v in found.values if v.kind == "parameter"} == {"0.weight", "0.bias"}


def test_modules_that_compile_themselves() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3))), torch.randn(2, 3)
    model[1].compile(backend="eager")
    found = capture_step(lambda: model(x))
    assert [(op.module, op.module_type, op.compiled) for op in found.ops if op.name == "aten::addmm"] == [
        ("0", "Linear", False),
        ("1.0", "Linear", True),
    ]
    assert found.compiled_modules == ("1",)


def test_a_compiled_function_that_was_never_run_is_not_compiled() -> None:
    calls = []

    def backend(graph: Any, _: Any) -> Any:
        calls.append(graph)
        return graph.forward

    x = torch.randn(3)
    function = torch.compile(lambda a: a.sin(), backend=backend)
    assert names(capture_step(lambda: function(x))) == ["aten::sin"]
    assert calls == []
    function(x)
    assert len(calls) == 1, "compiling goes on afterwards"


# --- Outputs and holdings. ---


@dataclass
class Result:
    loss: torch.Tensor
    parts: tuple[torch.Tensor, ...]
    note: str = ""


def test_outputs_are_named_by_their_place() -> None:
    pair = namedtuple("pair", "left right")
    x = torch.randn(3)

    def step() -> Any:
        return OrderedDict(
            a=x + 1, b=[x + 2, {"c": x + 3}], d=pair(x + 4, None), e=Result(x + 5, (x + 6, x)), f="text", g=Box(x + 7)
        )

    found = capture_step(step)
    assert dict(found.outputs).keys() == {
        *("output.a", "output.b.0", "output.b.1.c", "output.d.left", "output.e.loss", "output.e.parts.0"),
        *("output.e.parts.1", "output.g.held"),
    }
    assert found.values[dict(found.outputs)["output.e.parts.1"]].name == "x, output.e.parts.1"
    assert found.values[dict(found.outputs)["output.a"]].producer == 0


class Box:
    def __init__(self, held: torch.Tensor) -> None:
        self.held = held
        self.itself = self


def test_outputs_that_contain_themselves_end() -> None:
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    assert [name for name, _ in named_tensors(loop)] == ["output.0"]
    assert [name for name, _ in named_tensors(torch.ones(1))] == ["output"]
    assert list(named_tensors(nn.Linear(2, 2))) == [], "a model is no output"


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(2, 2)
        self.batches = {"first": torch.ones(1, 2)}

    def step(self) -> torch.Tensor:
        return self.model(self.batches["first"])

    __call__ = step


GLOBAL_MODEL, GLOBAL_INPUT = nn.Linear(2, 2), torch.ones(1, 2)


def global_step() -> list[torch.Tensor]:
    return [GLOBAL_MODEL(x) for x in [GLOBAL_INPUT]]


def held_by(step: Any) -> tuple[set[str], set[str]]:
    found = find_holdings(step)
    return set(found.models), set(found.tensors)


def test_models_and_tensors_are_found_where_a_step_holds_them() -> None:
    trainer, model, x = Trainer(), nn.Linear(2, 2), torch.ones(1, 2)

    def closure(scale: torch.Tensor = x, *, shift: torch.Tensor = x) -> torch.Tensor:
        return model(x) * scale + shift

    assert held_by(trainer.step) == ({"model"}, {"batches.first"})
    assert held_by(trainer) == ({"model"}, {"batches.first"})
    assert held_by(lambda: trainer.step()) == ({"trainer.model"}, {"trainer.batches.first"})
    assert held_by(closure)[0] == {"model"}
    assert held_by(partial(closure, scale=torch.ones(2))) == ({"model"}, {"scale", "x"})
    assert held_by(global_step) == ({"GLOBAL_MODEL"}, {"GLOBAL_INPUT"}), "also in a comprehension"
    assert held_by(model)[0] == {"model"}
    assert held_by(model.forward)[0] == {"model"}
    assert held_by(torch.no_grad()(closure))[0] == {"model"}
    assert held_by(len) == (set(), set())


def test_only_outermost_models_count() -> None:
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(inner)
    assert held_by(lambda: (inner, outer))[0] == {"outer"}


def test_looking_for_models_calls_nothing() -> None:
    class Lazy(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: Any) -> Any:
            pytest.fail("asked for an item")

    class Sly:
        @property
        def model(self) -> nn.Module:
            pytest.fail("asked for a property")

    lazy, sly, unset = Lazy(a=1), Sly(), None
    step = lambda: (lazy, sly, later)  # noqa: E731
    assert held_by(step) == (set(), set())
    later = unset


def test_names_are_those_without_torch_compile() -> None:
    assert clean_name("_orig_mod.layers.0._orig_mod.weight") == "layers.0.weight"
    assert clean_name("_orig_mod") == ""
    assert clean_name("layer") == "layer"


def test_a_composite_operator_is_recorded_as_its_parts() -> None:
    """`matmul` asks whether the view of a weight needs a gradient, and takes `mm` or `bmm` by that."""
    layer, x = torch.nn.Linear(64, 50, bias=False), torch.randn(2, 16, 64)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return layer(x[:, -1:, :])

    expected = step()
    names = [op.name for op in capture_step(step).ops]
    assert names == ["aten::slice", "aten::t", "aten::view", "aten::mm", "aten::_unsafe_view"]
    seen: list[torch.Tensor] = []
    capture_step(lambda: seen.append(step()))
    assert torch.equal(seen[0], expected)
