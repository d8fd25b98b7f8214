"""Recording changes no result, keeps no exception, and leaves nothing behind."""

from __future__ import annotations

import copy
import gc
import random
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.amp.autocast_mode import autocast
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizers

from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.state import seeded


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.drop(torch.relu_(self.norm(self.conv(x)))).flatten(1))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, amp: bool) -> torch.Tensor:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        loss = model(x).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss


def watched(step: Callable[[], Any]) -> Any:
    """Return what a step returns under capture."""
    kept: list[Any] = []
    capture_step(lambda: kept.append(step()))
    return kept[0]


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False, "fused": False}])
def test_training_continues_as_if_one_step_had_not_been_captured(options: dict[str, bool], amp: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    first = Net()
    second = copy.deepcopy(first)
    results = []
    for model, middle in ((first, lambda step: step()), (second, watched)):
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        torch.manual_seed(1)
        step = lambda: train(model, optimizer, x, amp)  # noqa: B023, E731
        losses = [step(), middle(step), step()]
        gradients = [parameter.grad for parameter in model.parameters()]
        state = [tensor for each in optimizer.state.values() for tensor in each.values()]
        results.append([*losses, *gradients, *state, *model.state_dict().values(), torch.get_rng_state()])
    assert len(results[0]) == len(results[1])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_outputs_are_the_same_bits(mode: Callable[[], Any]) -> None:
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)

    def step() -> torch.Tensor:
        with mode():
            y = model(x)
            z = torch.nn.functional.scaled_dot_product_attention(*[y.view(1, 2, 5)] * 3)
            return y.softmax(-1), z, torch.nn.functional.layer_norm(y, (5,))

    for plain, seen in zip(step(), watched(step), strict=True):
        assert torch.equal(plain, seen)
        assert plain.requires_grad == seen.requires_grad
        assert plain.is_inference() == seen.is_inference()
        assert type(plain.grad_fn) is type(seen.grad_fn)


def test_random_numbers_are_restored() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = torch.rand(1), random.random(), np.random.rand()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    draws = []
    with seeded() as begin:
        for _ in range(2):
            begin()
            draws.append((float(torch.rand(1)), random.random(), float(np.random.rand())))
    assert draws[0] == draws[1]
    assert (torch.rand(1), random.random(), np.random.rand()) == expected
    with pytest.raises(KeyboardInterrupt), seeded() as begin:
        begin()
        raise KeyboardInterrupt


def test_gradients_are_accumulated_as_without_capture() -> None:
    """Autograd keeps a gradient without copying it only if nothing else refers to it."""
    w = torch.randn(1000, requires_grad=True)
    found = capture_step(lambda: (w * 2).backward(torch.ones(1000)))
    assert {op.name for op in found.ops} == {"aten::mul", "aten::ones", "aten::detach"}


# --- Nothing stays. ---


def attached() -> dict[str, Any]:
    """Return everything that a recorder might leave attached."""
    return {
        "module hooks": [
            dict(getattr(hooks, name))
            for name in vars(hooks)
            if name.startswith("_global_") and isinstance(getattr(hooks, name), dict)
        ],
        "optimizer hooks": [
            dict(optimizers._global_optimizer_pre_hooks),
            dict(optimizers._global_optimizer_post_hooks),
        ],
        "autocast": (autocast.__enter__, autocast.__exit__),
        "modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "overrides": torch._C._is_torch_function_enabled(),
        "stance": repr(torch._dynamo.eval_frame._stance),
        "filters": list(warnings.filters),
        "show": warnings.showwarning,
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        "threads": threading.active_count(),
        "numpy": np.geterr(),
    }


@contextmanager
def leaves_nothing() -> Iterator[None]:
    import torch._dynamo  # noqa: F401 - the first capture loads it

    before = attached()
    yield
    assert attached() == before


class Odd(BaseException):
    """Something that is no Exception."""


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, Odd])
@pytest.mark.parametrize("where", ["step", "module", "autocast", "backward", "optimizer", "operator", "hook"])
def test_nothing_stays_whatever_happens(error: type[BaseException] | None, where: str) -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fail("module")
            return x * 2

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            fail("backward")
            return gradient

    class Descent(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            fail("optimizer")

    @torch.library.custom_op("joulediff_tests::failing", mutates_args=())
    def failing(x: torch.Tensor) -> torch.Tensor:
        fail("operator")
        return x.clone()

    raised: list[BaseException] = []

    def fail(place: str) -> None:
        if place == where and error is not None:
            raised.append(error("no"))
            raise raised[0]

    model, w = Failing(), torch.ones(3, requires_grad=True)
    model.register_forward_pre_hook(lambda *_: fail("hook"))
    optimizer = Descent([w], lr=0.1)

    def step() -> torch.Tensor:
        fail("step")
        y = Backward.apply(model(w))
        with torch.autocast("cpu"):
            fail("autocast")
        with torch.no_grad():
            failing(y.detach())
        y.sum().backward()
        optimizer.step()
        return y

    with leaves_nothing():
        if error is None:
            capture_step(step)
        else:
            with pytest.raises(error) as caught:
                capture_step(step)
            assert caught.value is raised[0], "the very exception"


def test_an_exception_before_the_step_leaves_nothing() -> None:
    def begin() -> None:
        raise ValueError("no")

    with leaves_nothing(), pytest.raises(ValueError, match="no"):
        capture_step(lambda: None, begin=begin)


def test_the_warning_filters_of_the_program_stay() -> None:
    x = torch.randn(3)

    def step() -> torch.Tensor:
        warnings.filterwarnings("ignore", message="the program's own")
        return x + 1

    with warnings.catch_warnings():
        capture_step(step)
        assert any(each[1] is not None and each[1].match("the program's own") for each in warnings.filters)


def test_warnings_of_the_program_pass() -> None:
    x = torch.randn(3)

    def step() -> torch.Tensor:
        warnings.warn("mind this", stacklevel=1)
        return x + 1

    with pytest.warns(UserWarning, match="mind this"):
        capture_step(step)


def test_hooks_of_the_program_stay() -> None:
    calls: list[str] = []
    handle = hooks.register_module_forward_hook(lambda *_: calls.append("global"))
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    try:
        capture_step(lambda: model(x))
        model(x)
    finally:
        handle.remove()
    assert calls == ["global", "global"]


def test_a_hook_that_the_step_registers_stays() -> None:
    model, x, calls = nn.Linear(3, 3), torch.randn(2, 3), []

    def step() -> torch.Tensor:
        model.register_forward_hook(lambda *_: calls.append(1))
        return model(x)

    capture_step(step)
    model(x)
    assert calls == [1, 1]


def test_compiled_programs_are_compiled_again_afterwards() -> None:
    x, graphs = torch.randn(3), []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda a: a.sin() * 3, backend=backend)
    function(x)
    capture_step(lambda: function(x))
    function(x)
    assert len(graphs) == 1, "neither thrown away nor made again"


def test_the_stance_of_the_program_comes_back() -> None:
    with torch.compiler.set_stance("eager_on_recompile"):
        before = repr(torch._dynamo.eval_frame._stance)
        capture_step(lambda: torch.ones(2) + 1)
        assert repr(torch._dynamo.eval_frame._stance) == before


def test_a_record_holds_no_tensor() -> None:
    held = [nn.Linear(3, 3), torch.randn(2, 3)]
    found = capture_step(lambda: held[0](held[1]))
    dead = [weakref.ref(each) for each in held]
    held.clear()
    gc.collect()
    assert [each() for each in dead] == [None, None]
    assert len(found.ops) == 2


def test_no_memory_is_held_while_the_step_runs() -> None:
    """Peak memory: tensors die when the program lets go of them, and signing makes none."""
    x = torch.randn(200, 1000)

    def step() -> torch.Tensor:
        y = x
        for _ in range(10):
            y = torch.tanh(y[:, ::2].repeat(1, 2))
        return y.sum()

    def peak(run: Callable[[], object]) -> int:
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            run()
        total = highest = 0
        for event in sorted(profile.function_events, key=lambda event: event.time_range.start):
            total += event.self_cpu_memory_usage
            highest = max(highest, total)
        return highest

    step()
    plain, seen = peak(step), peak(lambda: capture_step(step))
    assert 0 < seen <= 1.1 * plain


def test_buffers_are_not_given_to_autograd() -> None:
    """A signature that autograd recorded would keep every graph alive."""
    model, x = nn.Linear(50, 50), torch.randn(20, 50)
    alive: list[bool] = []

    def step() -> None:
        loss = model(x).sum()
        node = weakref.ref(loss)
        loss.backward()
        del loss
        gc.collect()
        alive.append(node() is not None)

    capture_step(step)
    assert alive == [False]


def test_capturing_a_program_without_the_compiler_does_not_load_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch\n"
        "from joulediff.frameworks.torch.capture.capture import capture_step\n"
        "x = torch.ones(4, 4)\n"
        "found = capture_step(lambda: (x @ x).relu())\n"
        "print([op.name for op in found.ops], 'torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['aten::mm', 'aten::relu'] False"
