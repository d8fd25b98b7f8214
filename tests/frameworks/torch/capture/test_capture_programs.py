"""Programs of every kind are captured: none fails, and each has the expected operators."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.frameworks.torch.capture.values import Values

# torch 2.13 says that scripting will go; torch.func uses it itself.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")


def names(found: Captured) -> list[str]:
    return [op.name.removeprefix("aten::") for op in found.ops]


def outputs(found: Captured) -> dict[str, Any]:
    return {name: found.values[value] for name, value in found.outputs}


# --- What the framework offers. ---


def test_custom_operators_are_one_operator_each() -> None:
    @torch.library.custom_op("joulediff_tests::add_twice", mutates_args=("total",))
    def add_twice(total: torch.Tensor, x: torch.Tensor, times: int = 2) -> torch.Tensor:
        total.add_(x * times)
        return x.sin()

    total, x = torch.zeros(3), torch.ones(3)
    found = capture_step(lambda: torch.ops.joulediff_tests.add_twice(total, x, times=3))
    (op,) = found.ops
    assert (op.name, op.overload) == ("joulediff_tests::add_twice", "default")
    assert found.values[op.writes[0]].previous == op.inputs[0]
    assert found.changed == ("total",)
    assert torch.equal(total, torch.full((3,), 3.0))


def test_a_custom_operator_made_of_others_is_taken_apart() -> None:
    library = torch.library.Library("joulediff_tests_composite", "DEF")
    library.define("shifted(Tensor x) -> Tensor")
    library.impl("shifted", lambda x: x.sin() + 1, "CompositeImplicitAutograd")
    x = torch.ones(3)
    with torch.inference_mode():
        found = capture_step(lambda: torch.ops.joulediff_tests_composite.shifted(x))
    assert names(found) == ["sin", "add"]


def test_functions_with_gradients_of_their_own() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradient * 3 * x.square()

    x = torch.ones(3, requires_grad=True)
    found = capture_step(lambda: Cube.apply(x).sum().backward())
    forward = next(op for op in found.ops if op.name == "aten::pow")
    squares = [op for op in found.ops if op.phase == "backward" and op.frame is not None and op.name != "aten::expand"]
    assert {op.forward for op in squares if "backward" in found.frames[op.frame or 0].function.rpartition(".")[2]} >= {
        forward.id
    }


def test_transforms_of_functions() -> None:
    x = torch.randn(4, 3)
    assert names(capture_step(lambda: torch.func.vmap(lambda a: (a * 2).sum())(x))) == ["mul", "sum"]
    gradient = capture_step(lambda: torch.func.grad(lambda a: (a**3).sum())(x))
    assert {op.phase for op in gradient.ops} == {"forward", "backward"}
    assert "cos" in names(capture_step(lambda: torch.func.jvp(lambda a: a.sin(), (x,), (x,))))
    assert "mul" in names(capture_step(lambda: torch.func.jacrev(lambda a: a.sin())(x[0])))
    model, weight = nn.Linear(3, 2), torch.ones(2, 3)
    called = capture_step(lambda: torch.func.functional_call(model, {"weight": weight}, (x,)))
    assert next(op for op in called.ops if op.name == "aten::addmm").module == ""
    assert "weight" in {value.name for value in called.values if value.kind == "input"}


def test_operators_that_call_functions() -> None:
    x = torch.ones(3)
    chosen = capture_step(lambda: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)))
    assert "sin" in names(chosen)
    assert outputs(chosen)["output"].producer is not None
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 8)
    attention = torch.compile(flex_attention, backend="eager")
    found = capture_step(lambda: attention(q, q, q))
    assert "bmm" in names(found)
    assert outputs(found)["output"].kind == "produced"


def test_scripted_traced_and_exported_models() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), torch.randn(2, 3)
    for made in (torch.jit.script(model), torch.jit.trace(model, x), torch.export.export(model, (x,)).module()):
        with torch.no_grad():
            expected = model(x)
            for _ in range(3):
                found = capture_step(lambda made=made: made(x))
        assert names(found)[:3] == ["t", "addmm", "relu"]
        assert {op.module for op in found.ops} == {""}
        assert outputs(found)["output"].shape == tuple(expected.shape)
    scripted = capture_step(lambda: torch.jit.script(model)(x))
    assert {op.module_type for op in scripted.ops} == {"Sequential"}, "the class that was written"


def test_a_model_exported_in_the_step() -> None:
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    found = capture_step(lambda: torch.export.export(model, (x,)).module()(x))
    assert "addmm" in names(found)


def test_lazy_modules() -> None:
    model, x = nn.LazyLinear(2), torch.randn(4, 3)
    assert "addmm" in names(capture_step(lambda: model(x)))
    assert "weight" in {value.name for value in capture_step(lambda: model(x)).values}


# --- Kinds of tensors. ---


class Pair(torch.Tensor):
    """A tensor made of two, as PyTorch's own wrappers are written."""

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(cls, a.size(), strides=a.stride(), dtype=a.dtype)

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: Any) -> Pair:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first, second = (
            func(*(getattr(each, part) if isinstance(each, Pair) else each for each in args), **(kwargs or {}))
            for part in ("a", "b")
        )
        return args[0] if func.name().endswith("_.Tensor") else Pair(first, second)


class Wrapper(torch.Tensor):
    """The same of one tensor, by a class that does not say how to rebuild it."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Wrapper(func(*(each.inner if isinstance(each, Wrapper) else each for each in args), **(kwargs or {})))


def test_tensors_made_of_tensors_are_seen_in_parts() -> None:
    pair = Pair(torch.ones(2, 3), torch.zeros(2, 3))
    found = capture_step(lambda: (pair * 2).add_(1))
    assert names(found) == ["mul", "mul", "add_", "add_"]
    assert outputs(found).keys() == {"output.a", "output.b"}
    assert {value.name for value in found.values if value.kind == "input"} == {"pair.a", "pair.b"}
    assert all(value.signature is not None for value in found.values)
    wrapped = Wrapper(torch.ones(3))
    assert names(capture_step(lambda: wrapped * 2 + 1)) == ["mul", "add"]


def test_parameters_made_of_tensors_are_named_in_parts() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(Pair(torch.ones(2), torch.ones(2)), requires_grad=False)
    model.forward = lambda: model.weight * 2
    found = capture_step(lambda: model())
    assert [value.name for value in found.values if value.kind == "parameter"] == ["weight.a", "weight.b"]


class Logging(torch.Tensor):
    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs)


def test_subclasses_that_watch_functions_see_none_of_ours() -> None:
    x = torch.randn(2, 3).as_subclass(Logging)

    def step() -> torch.Tensor:
        return (x[:, 1:] * 2).sum()

    step()
    expected, Logging.seen = Logging.seen, []
    capture_step(step)
    assert [name for name in Logging.seen if name in expected] == expected
    assert not {"as_strided", "copy_", "view"} & set(Logging.seen)


def test_sparse_nested_and_meta_tensors() -> None:
    sparse = torch.eye(4).to_sparse()
    found = capture_step(lambda: (sparse @ torch.ones(4, 2), (sparse + sparse).to_dense()))
    assert {value.kind for value in outputs(found).values()} == {"produced"}
    meta = capture_step(lambda: torch.empty(3, device="meta") + 1)
    assert (outputs(meta)["output"].device, outputs(meta)["output"].signature) == ("meta", None)
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    assert names(capture_step(lambda: jagged * 2)) == ["mul"]


# torch 2.13 calls these kinds of tensors a prototype, or says that they will go.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_old_nested_and_quantised_tensors() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])
    assert names(capture_step(lambda: nested * 2)) == ["mul"]
    quantised = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    found = capture_step(lambda: (quantised.dequantize(), quantised.int_repr()))
    assert [value.dtype for value in outputs(found).values()] == ["float32", "int8"]


def test_empty_and_single_tensors_and_masks() -> None:
    x = torch.randn(3, 4)
    found = capture_step(lambda: (x[:0] * 2, x.sum(), x[x > 0], x.masked_fill(x > 0, 0), x[:, :0].sum(1)))
    assert [value.shape for value in outputs(found).values()][:2] == [(0, 4), ()]


# --- Threads and processes. ---


def test_operators_in_a_pool_are_recorded() -> None:
    model, x = nn.Linear(3, 3), torch.randn(2, 3)

    def step() -> torch.Tensor:
        with ThreadPoolExecutor(2) as pool, torch.no_grad():
            a, b = pool.map(lambda each: model(each).detach(), [x, x + 1])
        return a + b

    found = capture_step(step)
    own = ["t", "addmm", "detach"]
    assert names(found) == ["add", *own, *own, "add"], "each task stands where it was submitted"
    assert [op.thread for op in found.ops] == [0, 1, 1, 1, 2, 2, 2, 0]
    last = found.ops[-1]
    assert [found.values[value].producer for value in last.inputs] == [2, 5]
    assert torch.equal(step(), (model(x) + model(x + 1)).detach())


def test_tasks_that_share_a_weight_keep_the_order_in_which_they_were_submitted() -> None:
    """Views of the weight are no writes to it: the second task runs as a whole before the first one."""
    model, x, is_done = nn.Linear(3, 3), torch.randn(2, 3), threading.Event()

    def first() -> torch.Tensor:
        assert is_done.wait(60)
        return model(x)

    def second() -> torch.Tensor:
        try:
            return model(x * 2)
        finally:
            is_done.set()

    def step() -> torch.Tensor:
        is_done.clear()
        with ThreadPoolExecutor(2) as pool:
            a, b = pool.submit(first), pool.submit(second)
            return a.result() + b.result()

    with torch.no_grad():
        found = capture_step(step)
    assert names(found) == ["t", "addmm", "mul", "t", "addmm", "add"]


def test_autocast_in_another_thread_is_its_own() -> None:
    x = torch.ones(2, 2)
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside.set()
            done.wait(10)

    def step() -> torch.Tensor:
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        y = x @ x
        done.set()
        thread.join()
        return y

    assert {op.autocast for op in capture_step(step).ops} == {None}


def test_a_backward_pass_in_another_thread_passes() -> None:
    x = torch.randn(3, requires_grad=True)

    def step() -> torch.Tensor:
        loss = x.sin().sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        return x.grad + 1  # type: ignore[operator]

    found = capture_step(step)
    assert names(found) == ["sin", "sum", "ones_like", "expand", "cos", "mul", "detach", "add"]
    assert [op.forward for op in found.ops if op.phase == "backward"] == [1, 0, 0, None]
    assert x.grad is not None


# Forking a process that has threads is what the data loader does.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_of_a_data_loader_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    data, read, parent = TensorDataset(torch.arange(12.0).view(6, 2)), Values.read, os.getpid()

    def read_here(values: Values, tensor: torch.Tensor) -> int:
        assert os.getpid() == parent, "a worker records"
        return read(values, tensor)

    monkeypatch.setattr(Values, "read", read_here)

    def step() -> torch.Tensor:
        total = torch.zeros(2)
        for (batch,) in DataLoader(data, batch_size=3, num_workers=1):
            total += batch.mul_(2).sum(0)
        return total

    found = capture_step(step)
    assert names(found).count("mul_") == 2
    assert "stack" not in names(found), "that is the worker's"
    assert found.changed == (), "batches are new in every step"


# --- Modes of the program's own. ---


class Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def test_a_mode_inside_or_around_the_step_sees_the_same_as_without_capture() -> None:
    x = torch.randn(3, 4)

    def plain() -> torch.Tensor:
        return x[:, 1:].add(1)

    def step() -> torch.Tensor:
        with Log() as log:
            y = plain()
        assert log.seen == ["aten::slice.Tensor", "aten::add.Tensor"]
        return y

    assert names(capture_step(step)) == ["slice", "add"]
    with Log() as around:
        capture_step(plain)
    assert around.seen == ["aten::slice.Tensor", "aten::add.Tensor"]


def test_fake_tensors_are_values_without_contents() -> None:
    fake = torch._subclasses.FakeTensorMode()

    def step() -> torch.Tensor:
        with fake:
            return torch.ones(3) + 1

    found = capture_step(step)
    assert names(found) == ["ones", "add"]
    assert (outputs(found)["output"].shape, outputs(found)["output"].signature) == ((3,), None)
    with fake:
        around = capture_step(lambda: torch.ones(3) + 1)
    assert names(around) == ["ones", "add"]


def test_a_capture_inside_of_a_capture() -> None:
    x = torch.randn(3)
    inner: list[Captured] = []

    def step() -> torch.Tensor:
        inner.append(capture_step(lambda: x.sin()))
        return x.cos()

    outer = capture_step(step)
    assert names(inner[0]) == ["sin"]
    assert names(outer) == ["sin", "cos"]


def test_a_function_mode_around_the_step_sees_none_of_ours() -> None:
    from torch.overrides import TorchFunctionMode

    class Functions(TorchFunctionMode):
        seen: list[str] = []  # noqa: RUF012

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    w = torch.randn(3, requires_grad=True)

    def step() -> None:
        (w * 2).sum().backward()

    with Functions():
        step()
        expected, Functions.seen = Functions.seen, []
        capture_step(step)
    assert not {"as_strided", "copy_"} & set(Functions.seen)
    assert [name for name in Functions.seen if name in expected][: len(expected)] == expected


# --- Exceptions inside of the step. ---


def test_exceptions_that_the_step_catches_are_its_own_business() -> None:
    model, x = nn.Linear(3, 3), torch.randn(2, 3)

    def step() -> torch.Tensor:
        with suppress(RuntimeError):
            model(torch.ones(2, 5))
        return model(x)

    found = capture_step(step)
    assert names(found) == ["ones", "t", "t", "addmm"]
    assert found.ops[-1].module == ""
