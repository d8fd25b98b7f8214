"""Operators run again in the program's process: with the inputs of the call, the same results, and nothing changed."""

from __future__ import annotations

import copy
import json
import random
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack

from interpreter import SEED, check_signature, flatten, seed_all, sign, to_run
from joulediff.archive.reader import load
from joulediff.energy.ledger import open_books
from joulediff.energy.load_energy import BurstEnergy, BurstMeter
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.replay import bursts as loads
from joulediff.frameworks.torch.replay.bursts import HostLoad, _Renewal
from joulediff.frameworks.torch.replay.inputs import KeptInputs, collect_inputs
from joulediff.frameworks.torch.replay.replayer import TorchReplayer
from joulediff.measuring.windows import StepEnergy
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Op, Replay, Run
from joulediff.session.record import record

Step = Callable[[], Any]
QUICK: dict[str, Any] = {"seconds": 0.05, "wait_s": 0.0, "meter": "estimated"}


def seed() -> None:
    seed_all(SEED)


def captured(step: Step) -> Run:
    return to_run(capture_step(step, begin=seed))


def collected(step: Step, run: Run | None = None) -> tuple[Run, dict[int, KeptInputs | JoulediffError]]:
    run = run or captured(step)
    return run, collect_inputs(step, run, range(len(run.ops)), begin=seed)


def find(run: Run, name: str) -> Op:
    return next(op for op in run.ops if op.name == f"aten::{name}")


def values(found: KeptInputs | JoulediffError) -> list[Any]:
    assert isinstance(found, KeptInputs), found
    return [tensor.tolist() for tensor in found.tensors()]


def all_real(run: Run, found: dict[int, KeptInputs | JoulediffError]) -> None:
    """Check that the inputs of every operator are those the captured call had."""
    assert sorted(found) == [op.id for op in run.ops]
    for op in run.ops:
        kept = found[op.id]
        assert isinstance(kept, KeptInputs), (op.name, kept)
        for value, tensor in zip(op.inputs, kept.tensors(), strict=True):
            check_signature(run, value, tensor, op)


# --- Collecting. ---


def test_inputs_are_those_of_the_moment_of_the_call() -> None:
    base = torch.tensor([1.0, 2.0])

    def step() -> torch.Tensor:
        x = base.clone()
        x.add_(1)
        y = x * 3
        x.zero_()
        return x + y

    run, found = collected(step)
    names = [op.name.removeprefix("aten::") for op in run.ops]
    assert names == ["clone", "add_", "mul", "zero_", "add"]
    assert [values(found[op.id]) for op in run.ops] == [
        [[1.0, 2.0]],
        [[1.0, 2.0]],
        [[2.0, 3.0]],
        [[2.0, 3.0]],
        [[0.0, 0.0], [6.0, 9.0]],
    ]


@contextmanager
def state_kept(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Iterator[Step]:
    """Give a function that puts a model and its optimizer back to where they are now."""
    before = copy.deepcopy(module.state_dict())
    states = None if optimizer is None else copy.deepcopy(optimizer.state_dict())

    def back() -> None:
        module.load_state_dict(before)
        if optimizer is not None:
            optimizer.load_state_dict(copy.deepcopy(states))

    yield back


class Net(nn.Module):
    """Convolution, batch norm in training mode, in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu_(self.norm(self.conv(x))).flatten(1))


def training(**options: Any) -> tuple[Net, torch.optim.Optimizer, Step]:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 3, 8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step()
    return model, optimizer, step


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}], ids=["foreach", "fused"])
def test_inputs_of_the_backward_pass_and_of_the_optimizer(options: dict[str, bool]) -> None:
    model, optimizer, step = training(**options)
    with state_kept(model, optimizer) as back:
        run = captured(step)
        back()
        _, found = collected(step, run)
    assert {op.phase for op in run.ops} == {"forward", "backward", "optimizer"}
    all_real(run, found)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_inputs_in_every_mode(mode: Callable[[], Any]) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(3, 4)

    def step() -> torch.Tensor:
        with mode():
            return model(x).relu_()

    all_real(*collected(step))


def test_inputs_of_a_compiled_module() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU()), torch.randn(3, 4)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    run, found = collected(lambda: compiled(x) * 2)
    assert any(op.compiled for op in run.ops) or "aten::gelu" in {op.name for op in run.ops}
    all_real(run, found)


def test_memory_that_the_step_never_writes_is_not_copied() -> None:
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    norm = nn.BatchNorm1d(4)
    _, found = collected(lambda: norm(layer(x)))
    places = {p.data_ptr() for p in (*layer.parameters(), *norm.parameters(), x)}
    written = {norm.running_mean.data_ptr(), norm.running_var.data_ptr()}  # type: ignore[union-attr]
    kept = [each for each in found.values() if isinstance(each, KeptInputs)]
    buffers = {buffer.data_ptr() for each in kept for buffer in each.buffers}
    assert places <= buffers, "a view of a weight is the weight's memory"
    assert not written & buffers


def test_operators_that_differ_when_the_step_runs_again_are_left_out() -> None:
    x, calls = torch.randn(4), [0]

    def step() -> torch.Tensor:
        calls[0] += 1
        y = x + 1
        y = y.sin() if calls[0] == 1 else y.to_sparse().coalesce().to_dense()
        return y * 2

    _, found = collected(step)
    assert sorted(found) == [0]


def nest(*tensors: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nested tensors will change
        return torch.nested.nested_tensor(list(tensors))


@pytest.mark.parametrize("odd", [lambda x: x.to_sparse(), lambda x: nest(x, x[:2])], ids=["sparse", "nested"])
def test_tensors_without_strides_where_there_were_some_cannot_be_kept(odd: Callable[[torch.Tensor], Any]) -> None:
    made, x, calls = odd(torch.ones(4)), torch.ones(4), [0]

    def step() -> torch.Tensor:
        calls[0] += 1
        return (x if calls[0] == 1 else made).neg()

    _, found = collected(step)
    assert isinstance(found[0], JoulediffError)


def test_fewer_and_more_operators_than_before_do_no_harm() -> None:
    x, counts = torch.randn(4), iter([3, 1])

    def step() -> torch.Tensor:
        y = x
        for _ in range(next(counts)):
            y = y.sin()
        return y

    _, found = collected(step)
    assert sorted(found) == [0]
    counts = iter([1, 3])
    assert sorted(collected(step)[1]) == [0]


def test_an_operator_that_fails_inside_the_step_has_no_number() -> None:
    x, wrong = torch.ones(2, 3), torch.ones(2, 3)

    def step() -> torch.Tensor:
        y = x + 1
        with suppress(RuntimeError):
            torch.ops.aten.mm(y, wrong)
        return y.sin() * 2

    run, found = collected(step)
    assert [op.name for op in run.ops] == ["aten::add", "aten::sin", "aten::mul"]
    all_real(run, found)


class FakeTriton:
    """What stands in for Triton where it is not installed: a kernel launched with `run`."""

    def run(self, *args: Any, grid: Any = (1,), warmup: bool = False, **words: Any) -> None:
        with torch.no_grad():
            args[1].copy_(args[0] + 1)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    for name in ("triton", "triton.runtime", "triton.runtime.jit"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["triton.runtime.jit"].JITFunction = FakeTriton  # type: ignore[attr-defined]
    return FakeTriton()


def test_kernels_that_the_program_launches_itself_are_counted(kernel: FakeTriton) -> None:
    x = torch.zeros(4)

    def step() -> torch.Tensor:
        y = torch.empty_like(x)
        kernel.run(x, y, grid=(1,))
        kernel.run(x, y, grid=(1,), warmup=True)
        return y * 2

    plain = FakeTriton.run
    run = captured(step)
    names = [op.name for op in run.ops]
    assert names[:2] == ["aten::empty_like", "triton::kernel"]
    assert names[-1] == "aten::mul"
    found = collect_inputs(step, run, [len(names) - 1], begin=seed)
    assert values(found[len(names) - 1]) == [[1.0] * 4]
    assert FakeTriton.run is plain


class Odd(BaseException):
    """Something that is no Exception."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, Odd])
@pytest.mark.parametrize("where", ["step", "backward"])
def test_an_exception_of_the_step_passes_through_and_no_mode_stays(error: type[BaseException], where: str) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            if armed and where == "backward":
                raise raised
            return gradient

    w, armed, raised = torch.ones(3, requires_grad=True), [], error("no")

    def step() -> None:
        y = Failing.apply(w * 2)
        if armed and where == "step":
            raise raised
        y.sum().backward()

    run = captured(step)
    armed.append(1)
    stance = repr(torch._dynamo.eval_frame._stance)
    with pytest.raises(error) as caught:
        collect_inputs(step, run, [0], begin=seed)
    assert caught.value is raised
    assert _len_torch_dispatch_stack() == 0
    assert repr(torch._dynamo.eval_frame._stance) == stance


# --- Running operators again. ---


def replayer_of(step: Step, run: Run, ops: Sequence[int] | None = None) -> TorchReplayer:
    replayer = TorchReplayer(step, run, begin=seed)
    replayer.collect([op.id for op in run.ops] if ops is None else ops)
    return replayer


def call_again(replayer: TorchReplayer, op: Op, *, far: bool = False) -> tuple[HostLoad, list[torch.Tensor]]:
    """Return an operator that has run for a while, and what it makes of its first inputs then."""
    distances = [float("inf") if far else 0.0] * len(op.inputs)
    load = replayer.open_load(op.id, inputs=distances)
    assert isinstance(load, HostLoad)
    load.run(0.0)
    with loads.as_recorded():
        if load._renewal is not None:
            load._renewal._renew()
        output = load._calls[-1]()
    return load, [each for each in flatten(output) if isinstance(each, torch.Tensor)]


def all_give_the_same(step: Step, run: Run) -> int:
    """Check the results of every operator that can be run again, alone, and return how many that were."""
    replayer, count = replayer_of(step, run), 0
    for op in run.ops:
        if replayer.refusal(op) is not None:
            continue
        load, made = call_again(replayer, op, far=count % 2 == 1)
        assert load.how in ("calls", "loop") and load.inputs == "real", op
        assert len(made) == len(op.outputs)
        for value, tensor in zip(op.outputs, made, strict=True):
            assert tuple(tensor.shape) == run.values[value].shape
            check_signature(run, value, tensor, op)
        load.close()
        count += 1
    return count


@pytest.fixture(autouse=True)
def short_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "HOST_BURST_S", 1e-4)


def gpt2() -> tuple[nn.Module, Step]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 99, "n_positions": 64}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).eval()
    ids = torch.randint(0, 99, (2, 16))

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(ids).logits

    return model, step


def test_gpt2_gives_the_same_values_operator_by_operator() -> None:
    _, step = gpt2()
    run = captured(step)
    assert all_give_the_same(step, run) > 50


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}], ids=str)
def test_training_gives_the_same_values_operator_by_operator(options: dict[str, bool]) -> None:
    model, optimizer, step = training(**options)
    with state_kept(model, optimizer) as back:
        run = captured(step)
        back()
        assert all_give_the_same(step, run) > 25


def test_operators_that_write_in_place_get_their_first_values_back() -> None:
    x, table = torch.full((3,), 2.0), torch.zeros(4, 3)

    def step() -> torch.Tensor:
        x.mul_(3).clamp_(max=6.0)
        table[torch.tensor([1, 2])] = x
        torch.add(x, 1, out=table[0])
        x.fill_(2.0)
        total = table.sum()
        table.zero_()
        return total

    run = captured(step)
    for name in ("mul_", "index_put_"):
        op, replayer = find(run, name), replayer_of(step, run)
        _, made = call_again(replayer, op, far=True)
        check_signature(run, op.outputs[0], made[0], op)
    assert all_give_the_same(step, run) >= 5
    assert x.tolist() == [2.0] * 3


def test_first_values_come_back_after_many_short_bursts_and_before_each_long_one() -> None:
    renewed: list[int] = []
    short = _Renewal(lambda: renewed.append(1), takes_s=0.9e-3, burst_s=0.1)
    counts = []
    for _ in range(9):
        short.count()
        counts.append(len(renewed))
    assert counts == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    renewed.clear()
    long = _Renewal(lambda: renewed.append(1), takes_s=1e-3, burst_s=1.0)
    for _ in range(3):
        long.count()
    assert len(renewed) == 3


@pytest.mark.parametrize(("call_s", "copies"), [(1e-5, 8), (0.1, 3), (2.0, 1)])
def test_long_calls_on_the_host_have_few_copies(monkeypatch: pytest.MonkeyPatch, call_s: float, copies: int) -> None:
    made: list[int] = []
    monkeypatch.setattr(loads, "HOST_TURNS_S", 0.35)
    monkeypatch.setattr(loads, "_timed_on_host", lambda work: call_s * _calls_of(work, made))
    load = HostLoad([lambda: made.append(1)] * 8, inputs="real")
    assert load.copies == copies
    assert load.calls % copies == 0
    assert load.calls == copies or call_s < 0.1


def _calls_of(work: Callable[[], object], made: list[int]) -> int:
    before = len(made)
    work()
    return len(made) - before


def test_random_operators_draw_anew_and_dropout_keeps_its_share() -> None:
    x = torch.ones(20_000)
    step = lambda: torch.ops.aten.native_dropout(x, 0.25, True)  # noqa: E731
    run = captured(step)
    op = run.ops[0]
    replayer = replayer_of(step, run)
    load = replayer.open_load(op.id, inputs=[0.0])
    assert isinstance(load, HostLoad)
    seed()
    output, _ = load._calls[0]()
    check_signature(run, op.outputs[0], output, op)
    again, _ = load._calls[0]()
    assert not torch.equal(output, again)
    assert float(again.count_nonzero()) / 20_000 == pytest.approx(0.75, abs=0.02)


def test_a_generator_of_the_programs_own_is_left_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    step = lambda: torch.rand(4, generator=generator)  # noqa: E731
    run = captured(step)
    replayer = replayer_of(step, run)
    before = generator.get_state()
    for op in run.ops:
        if replayer.refusal(op) is None:
            call_again(replayer, op)
    assert torch.equal(generator.get_state(), before)


def test_a_number_that_is_read_comes_out_the_same() -> None:
    x = torch.tensor(2.5)
    step = lambda: x.item()  # noqa: E731
    run = captured(step)
    (op,) = run.ops
    load = replayer_of(step, run).open_load(op.id, inputs=[0.0])
    assert isinstance(load, HostLoad)
    assert load._calls[0]() == 2.5


def test_operators_run_below_autocast_and_autograd() -> None:
    a = torch.randn(4, 4, requires_grad=True)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return a.mm(a)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        run = captured(step)
        _, (made,) = call_again(replayer_of(step, run), run.ops[-1])
    assert made.dtype == torch.float32
    assert not made.requires_grad
    check_signature(run, run.ops[-1].outputs[0], made, None)


def test_inputs_that_were_not_collected_are_drawn() -> None:
    x = torch.randn(1000)
    step = lambda: x.sin()  # noqa: E731
    run = captured(step)
    load, (made,) = call_again(replayer_of(step, run, ops=[]), run.ops[0])
    assert load.inputs == "drawn"
    assert float(made.std()) == pytest.approx(float(x.sin().std()), rel=0.1)


def test_the_step_is_not_run_where_no_inputs_are_wanted() -> None:
    calls, x = [], torch.ones(2)

    def step() -> torch.Tensor:
        calls.append(1)
        return x + 1

    run = captured(step)
    TorchReplayer(step, run, begin=seed).collect([])
    assert len(calls) == 1


def test_a_closed_load_holds_no_memory() -> None:
    x = torch.randn(100)
    step = lambda: x * 2  # noqa: E731
    run = captured(step)
    replayer = replayer_of(step, run)
    load = replayer.open_load(0, inputs=[float("inf")])
    assert load.copies == 64
    load.close()
    assert load._calls == []  # type: ignore[attr-defined]
    replayer.close()
    assert replayer._kept == {}


# --- Refusals. ---


def refusal(op: Op, run: Run) -> str:
    why = TorchReplayer(lambda: None, run, begin=seed).refusal(op)
    assert why is not None
    return why


def simple() -> tuple[Run, Op]:
    x = torch.ones(2)
    run = captured(lambda: x + 1)
    return run, run.ops[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "_c10d_functional::all_reduce"}, "a collective waits for other processes"),
        ({"name": "c10d::allreduce_"}, "a collective waits for other processes"),
        ({"name": "triton::kernel", "overload": ""}, "triton::kernel cannot be run again"),
        ({"name": "aten::set_", "overload": "source_Tensor"}, "aten::set_ cannot be run again"),
        ({"name": "aten::no_such"}, "has no operator aten::no_such"),
        ({"name": "gone::op"}, "has no operator gone::op"),
        ({"outputs": (), "writes": ()}, "it makes no tensor and changes none"),
        ({"device": "xpu:0"}, "operators on xpu are not replayed"),
        (
            {"arguments": json.dumps({"args": [{"opaque": "Thing"}], "kwargs": {}})},
            "of type Thing cannot be made again",
        ),
    ],
)
def test_an_operator_that_cannot_be_run_again_is_reported(changes: dict[str, Any], why: str) -> None:
    run, op = simple()
    assert why in refusal(replace(op, **changes), run)


def test_sparse_nested_and_conjugated_inputs_are_refused() -> None:
    """Drawn ones would be plain, and so another operator's."""
    sparse, nested, z = torch.eye(3).to_sparse(), nest(torch.ones(2), torch.ones(3)), torch.ones(2, dtype=torch.cfloat)
    run = captured(lambda: sparse @ torch.ones(3, 3))
    assert refusal(run.ops[-1], run) == "it works on sparse or nested tensors"
    for step in (lambda: nested * 2, lambda: z.conj().clone()):
        run = captured(step)
        with pytest.raises(JoulediffError, match="not a plain tensor"):
            replayer_of(step, run).open_load(run.ops[-1].id, inputs=[0.0, 0.0])


def test_an_operator_that_needs_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1000)
    step = lambda: x * 2  # noqa: E731
    run = captured(step)
    replayer = replayer_of(step, run)
    monkeypatch.setattr(TorchReplayer, "budget_bytes", lambda *_: 3000)
    with pytest.raises(JoulediffError, match="do not fit into memory a second time"):
        replayer.open_load(0, inputs=[0.0])
    monkeypatch.setattr(TorchReplayer, "budget_bytes", lambda *_: 20_000)
    assert replayer.open_load(0, inputs=[float("inf")]).copies <= 2


@pytest.fixture
def own_ops() -> Iterator[Any]:
    """Operators of the program's own: one that works, and one that fails from its `limit`-th call on."""
    library = torch.library.Library("joulediff_replay_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("tired(Tensor x) -> Tensor")
    calls: dict[str, Any] = {"count": 0, "limit": 10**9, "error": KeyError("tired")}

    def tired(x: torch.Tensor) -> torch.Tensor:
        calls["count"] += 1
        if calls["count"] > calls["limit"]:
            raise calls["error"]
        return x + 1

    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("tired", tired, "CPU")
    yield calls
    library._destroy()


def test_operators_of_the_programs_own_are_run_again(own_ops: Any) -> None:
    x = torch.randn(5)
    step = lambda: torch.ops.joulediff_replay_tests.twice(x)  # noqa: E731
    run = captured(step)
    assert [op.name for op in run.ops] == ["joulediff_replay_tests::twice"]
    assert all_give_the_same(step, run) == 1


@pytest.mark.parametrize("error", [KeyError("tired"), RuntimeError("tired\nat length"), AssertionError()], ids=repr)
@pytest.mark.parametrize("after", [1, 500], ids=["at once", "later"])
def test_one_that_fails_when_run_again_is_reported(own_ops: Any, error: Exception, after: int) -> None:
    x = torch.randn(5)
    step = lambda: torch.ops.joulediff_replay_tests.tired(x)  # noqa: E731
    run = captured(step)
    replayer = replayer_of(step, run)
    own_ops.update(limit=own_ops["count"] + after, error=error)
    told = "it failed when run again: '?(tired|AssertionError)'?$"
    if after == 1:
        with pytest.raises(JoulediffError, match=told) as caught:
            replayer.open_load(0, inputs=[0.0])
    else:
        with pytest.raises(JoulediffError, match=told) as caught:
            load = replayer.open_load(0, inputs=[0.0])
            for _ in range(500):
                load.run(0.0)
    assert caught.value.__cause__ is error


# --- Whole recordings. ---


@pytest.fixture
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run loads twice instead of for a while: how long has no part in what the program finds afterwards."""

    def measure(_: BurstMeter, run: Step, rest_w: dict[str, float], *, window_s: float) -> BurstEnergy:
        run()
        run()
        per = {name: StepEnergy(Energy(1e-3, 9e-4, 11e-4, "metered"), 3.0, 0.0) for name in rest_w}
        return BurstEnergy(per, {}, 1e-3, 2.0, {}, ())

    monkeypatch.setattr(BurstMeter, "measure", measure)


def dropout_training() -> tuple[Any, ...]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(8, 2))
    x = torch.randn(5, 6, requires_grad=True)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return step, model, x, optimizer


def stateful() -> tuple[Any, ...]:
    torch.manual_seed(0)
    table, counts, generator = torch.zeros(10, 4), torch.zeros(10, dtype=torch.long), torch.Generator().manual_seed(1)

    def step() -> torch.Tensor:
        rows = torch.randint(0, 10, (3,), generator=generator)
        table[rows] += float(np.random.rand()) + random.random()
        counts.index_add_(0, rows, torch.ones(3, dtype=torch.long))
        if counts.sum().item() > 5:
            table.mul_(0.9)
        table.t()[0].fill_(1.0)
        return table.masked_fill(table > 2, 0.0)

    return step, table, counts, generator


def inference() -> tuple[Any, ...]:
    model, step = gpt2()

    def inside() -> torch.Tensor:
        with torch.inference_mode():
            return step()

    return inside, model


def everything(things: Sequence[Any]) -> list[torch.Tensor]:
    """Return copies of all tensors and states that a program holds."""
    found: list[torch.Tensor] = []
    for thing in things:
        if isinstance(thing, torch.Generator):
            found.append(thing.get_state())
        elif isinstance(thing, torch.Tensor):
            found += [thing] if thing.grad is None else [thing, thing.grad]
        elif isinstance(thing, nn.Module):
            found += [*thing.state_dict().values(), *(p.grad for p in thing.parameters() if p.grad is not None)]
        elif isinstance(thing, torch.optim.Optimizer):
            found += [tensor for state in thing.state.values() for tensor in state.values()]
    return [tensor.detach().clone() for tensor in found]


def draws() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()


def set_draws(state: tuple[Any, ...], numpy_state: Any) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(numpy_state)
    random.setstate(state[2])


@pytest.mark.parametrize("build", [dropout_training, stateful, inference])
def test_a_recording_leaves_the_program_as_that_many_steps_do(build: Step, no_measuring: None) -> None:
    states: list[tuple[Any, Any]] = []
    done: list[int] = []
    step, *things = build()

    def watched() -> Any:
        states.append((draws(), np.random.get_state()))
        return step()

    before = draws()
    run = record(watched, **QUICK, checkpoint=lambda _: done.append(len(states)))
    after = draws()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert [each.status for each in run.passes] == ["done"] * 5
    measured = [row for row in run.replays if row.energy_j is not None]
    assert len(measured) > 5
    assert {row.inputs for row in measured} == {"real"}

    again, *others = build()
    for state in states[: done[0]]:  # those of the metered pass; what watched ones change is put back
        set_draws(*state)
        again()
    for name, (here, there) in enumerate(zip(everything(things), everything(others), strict=True)):
        assert torch.equal(here, there), (name, here, there)


def test_an_operator_that_fails_does_not_keep_others_from_being_measured(own_ops: Any, no_measuring: None) -> None:
    x = torch.randn(50)

    def step() -> torch.Tensor:
        y = torch.ops.joulediff_replay_tests.tired(x).sin()
        if len(own_ops) == 4:  # while inputs are collected: from now on nobody may call it
            own_ops["limit"] = own_ops["count"]
        return torch.ops.joulediff_replay_tests.twice(y)

    def begin_replay(run: Run) -> None:
        if len(run.passes) == 4:
            own_ops["replay"] = True

    run = record(step, **QUICK, checkpoint=begin_replay)
    rows = {run.ops[row.op].name: row for row in run.replays}
    assert rows["joulediff_replay_tests::tired"].energy_j is None
    assert rows["joulediff_replay_tests::tired"].note == "it failed when run again: 'tired'"
    assert rows["joulediff_replay_tests::twice"].energy_j is not None
    assert rows["aten::sin"].energy_j is not None
    assert run.passes[-1].status == "done"


def test_inputs_that_do_not_fit_at_once_are_collected_in_lots(
    no_measuring: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, x = [0], torch.randn(10, 100)

    def step() -> torch.Tensor:
        calls[0] += 1
        y = x
        for size in range(100, 40, -10):
            y = y[:, :size].sin()
        return y

    before: list[int] = []
    monkeypatch.setattr(TorchReplayer, "budget_bytes", lambda *_: 5000)
    run = record(step, **QUICK, checkpoint=lambda _: before.append(calls[0]))
    rows = [row for row in run.replays if run.ops[row.op].name == "aten::sin" and row.energy_j is not None]
    assert len(rows) == 6
    assert {row.inputs for row in rows} == {"real", "drawn"}
    assert before[4] - before[3] == 4, "the step ran once for each lot, and not for drawn inputs"
    monkeypatch.setattr(TorchReplayer, "budget_bytes", lambda *_: 100)
    run = record(step, **QUICK)
    notes = {row.note for row in run.replays if run.ops[row.op].name == "aten::sin"}
    assert notes == {"its inputs and outputs do not fit into memory a second time"}
    assert run.passes[-1].status == "done"


@pytest.mark.parametrize("error", [None, MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_step_that_lacks_the_memory_of_kept_inputs_is_replayed_without_them(error: Exception | None) -> None:
    x, seen, held = torch.ones(100, 100), list[Run](), list[weakref.ref[torch.Tensor]]()

    def step() -> torch.Tensor:
        y = x.sin()
        held.append(weakref.ref(y))
        if seen and len(seen[-1].passes) == 4 and error is not None:
            raise error
        if seen and len(seen[-1].passes) == 4:
            torch.empty(2**60, dtype=torch.uint8)
        return y.cos()

    alive: list[bool] = []

    class Looking(ProgressListener):
        def stage(self, text: str, share: float | None = None) -> None:
            if text.startswith("replayed") and share is not None:
                alive.append(held[-1]() is not None)

    run = record(step, **QUICK, checkpoint=seen.append, listener=Looking())
    assert run.passes[-1].status == "done"
    assert alive == [False, False], "the tensors of the step that failed are given back before operators are measured"
    assert {row.inputs for row in run.replays if row.energy_j is not None} == {"drawn"}
    assert open_books(run).split == "replayed"


def test_an_operator_for_which_the_host_has_no_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lambda: torch.ones(10) * 2  # noqa: E731
    run = captured(step)
    monkeypatch.setattr(KeptInputs, "tensors", lambda _: [torch.empty(2**60, dtype=torch.uint8)])
    with pytest.raises(JoulediffError, match="do not fit into memory a second time"):
        replayer_of(step, run).open_load(find(run, "mul").id, inputs=[0.0])


def test_inputs_of_another_type_are_not_kept() -> None:
    types = iter([torch.float32, torch.float64])
    _, found = collected(lambda: torch.ones(3, dtype=next(types)) * 2)
    assert 1 not in found


def rows_of(run: Run) -> dict[str, Replay]:
    return {run.ops[row.op].name: row for row in run.replays}


def test_joules_of_every_operator(tmp_path: Path) -> None:
    a = torch.randn(192, 192)
    run = record(lambda: (a @ a).relu_(), **{**QUICK, "seconds": 0.3}, path=tmp_path / "run.jd")
    assert [(each.name, each.status) for each in run.passes] == [
        ("metered", "done"),
        ("sampled", "done"),
        ("traced", "done"),
        ("captured", "done"),
        ("replayed", "done"),
    ]
    rows = rows_of(run)
    assert set(rows) == {"aten::mm", "aten::relu_"}
    for row in rows.values():
        assert row.energy_j is not None and row.low_j is not None and row.high_j is not None
        assert row.energy_j > 0
        assert row.low_j <= row.energy_j <= row.high_j
        assert (row.domain, row.inputs, row.source) == ("cpu", "real", "estimated")
        assert row.how in ("calls", "loop")
        assert row.calls > 10
    assert [op.replay for op in run.ops] == [run.replays.index(rows[op.name]) for op in run.ops]
    books = open_books(run)
    assert books.split == "replayed"
    assert books.is_closed is not None
    assert all(books.total([number]).joules > 0 for number in range(len(run.kernels)))  # type: ignore[union-attr]
    assert load(tmp_path / "run.jd") == run


def test_signed_alike() -> None:
    """The values that tests hold against each other tell one bit of difference."""
    x = torch.randn(10)
    y = x.clone()
    y[3] = torch.nextafter(y[3], torch.tensor(9.0))
    assert sign(x) != sign(y)
