"""Recording on a real NVIDIA GPU: `pytest -m gpu`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from joulediff.archive.reader import load
from joulediff.model.run import Run
from joulediff.session.record import record
from signature_checks import assert_same

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch


def recorded(step: Callable[[], object], folder: Path) -> Run:
    run = record(step, seconds=1.0, wait_s=0.0, source=False, replay=False, path=folder / "run.jd")
    assert load(folder / "run.jd") == run
    names = ["metered", "sampled", "traced", "captured"]
    assert [(each.name, each.status) for each in run.passes] == [(name, "done") for name in names]
    return run


def gpt2(torch: Any, **changes: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{"n_layer": 2, **changes})).cuda()


def test_a_forward_pass_is_joined_completely(torch: Any, tmp_path: Path) -> None:
    model, ids = gpt2(torch).half().eval(), torch.randint(0, 50257, (4, 128), device="cuda")

    def step() -> Any:
        with torch.no_grad():
            return model(ids).logits

    run = recorded(step, tmp_path)
    assert run.notes == ()
    assert {kernel.join for kernel in run.kernels} == {"op"}
    assert run.measurement is not None
    assert 0 < sum(kernel.duration_s for kernel in run.kernels) < 2 * run.measurement.step_s
    assert all(kernel.grid and kernel.block for kernel in run.kernels if kernel.kind == "kernel")
    gelu = [op for op in run.ops if op.name == "aten::tanh"]
    assert [op.module for op in gelu] == ["transformer.h.0.mlp.act", "transformer.h.1.mlp.act"]
    assert all(run.values[op.outputs[0]].signature is not None for op in gelu)
    names = {value.name for value in run.values}
    assert {"ids", "output", "transformer.h.1.mlp.c_fc.weight"} <= names


def test_a_training_step_has_its_backward_threads(torch: Any, tmp_path: Path) -> None:
    model, ids = gpt2(torch), torch.randint(0, 50257, (2, 64), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = recorded(step, tmp_path)
    assert {op.phase for op in run.ops} == {"forward", "backward", "optimizer"}
    backward = [op for op in run.ops if op.phase == "backward"]
    assert {op.thread for op in backward} == {1}
    assert sum(op.forward is not None for op in backward) > 0.8 * len(backward)
    joined = sum(kernel.join == "op" for kernel in run.kernels)
    assert joined == len(run.kernels)
    assert any("changes its initial state" in note for note in run.notes)


def test_streams_copies_and_waits(torch: Any, tmp_path: Path) -> None:
    a, side = torch.randn(1024, 1024, device="cuda"), torch.cuda.Stream()

    def step() -> Any:
        b = a @ a
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            c = (a @ a.t()).relu_()
        torch.cuda.current_stream().wait_stream(side)
        d = b + c
        if d.sum().item() > -1e30:
            d = d + 1
        return d.cpu()

    run = recorded(step, tmp_path)
    products = [op for op in run.ops if op.name == "aten::mm"]
    assert products[0].stream != products[1].stream
    streams = {kernel.op: kernel.stream for kernel in run.kernels}
    assert streams[products[0].id] != streams[products[1].id]
    assert {"kernel", "memcpy"} <= {kernel.kind for kernel in run.kernels}
    assert any(kernel.size_bytes == 4 * 1024 * 1024 for kernel in run.kernels)
    waiting = {run.ops[wait.op].name for wait in run.waits if wait.op is not None}
    assert "aten::_local_scalar_dense" in waiting


def test_a_triton_kernel_is_an_operator(torch: Any, tmp_path: Path) -> None:
    from gpu_kernels import add_one

    x = torch.zeros(1000, device="cuda")

    def step() -> Any:
        y = torch.empty_like(x)
        add_one[(1,)](x, y, 1000, BLOCK=1024)
        return y * 2

    run = recorded(step, tmp_path)
    made, launched, scaled = run.ops
    assert [op.name for op in run.ops] == ["aten::empty_like", "triton::add_one", "aten::mul"]
    assert launched.inputs[1:] == made.outputs
    assert scaled.inputs == launched.writes
    assert run.signature_of(launched.writes[0]).sum_x == 1000  # type: ignore[union-attr]
    assert [kernel.op for kernel in run.kernels if "add_one" in kernel.name] == [launched.id]


def test_a_compiled_model_joins_by_operator(torch: Any, tmp_path: Path) -> None:
    model, ids = torch.compile(gpt2(torch).half().eval()), torch.randint(0, 50257, (2, 64), device="cuda")

    def step() -> Any:
        with torch.no_grad():
            return model(ids).logits * 2

    run = recorded(step, tmp_path)
    inside = [op for op in run.ops if op.compiled]
    assert {op.module.partition(".")[0] for op in inside if op.module} >= {"transformer", "lm_head"}
    assert not run.ops[-1].compiled
    assert {kernel.join for kernel in run.kernels} == {"op", "fused"}
    assert names_of_gelu(run) == ["add", "add", "mul", "mul", "mul", "mul", "pow", "tanh"]


def names_of_gelu(run: Run) -> list[str]:
    """Return the names of the operators in the kernel of the first GELU, sorted."""
    kernel = next(each for each in run.kernels if "tanh" in each.name)
    assert kernel.op is not None
    return sorted(run.ops[op].name.removeprefix("aten::") for op in (kernel.op, *kernel.members))


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_compiled_model_in_a_cuda_graph_joins_by_operator(torch: Any, tmp_path: Path) -> None:
    model = torch.compile(gpt2(torch).half().eval(), mode="reduce-overhead")
    ids = torch.randint(0, 50257, (2, 64), device="cuda")

    def step() -> Any:
        with torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            return model(ids).logits.clone()

    for _ in range(4):
        step()
    run = recorded(step, tmp_path)
    assert {kernel.join for kernel in run.kernels} == {"op", "fused"}
    assert names_of_gelu(run) == ["add", "add", "mul", "mul", "mul", "mul", "pow", "tanh"]


def captured(torch: Any, work: Callable[[], Any]) -> tuple[Any, Any]:
    """Return a graph of some work, and its result."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        made = work()
    return graph, made


def test_a_graph_that_was_captured_unseen_is_one_row(torch: Any, tmp_path: Path) -> None:
    x = torch.randn(512, 512, device="cuda")
    unwatched = torch.cuda.CUDAGraph.capture_begin
    torch.cuda.CUDAGraph.capture_begin = getattr(unwatched, "__wrapped__", unwatched)
    try:
        graph, y = captured(torch, lambda: (x @ x).relu())
    finally:
        torch.cuda.CUDAGraph.capture_begin = unwatched

    def step() -> Any:
        graph.replay()
        return y * 2

    run = recorded(step, tmp_path)
    assert [op.name for op in run.ops] == ["cuda_graph::replay", "aten::mul"]
    assert {kernel.op for kernel in run.kernels} == {0, 1}
    assert any("CUDA graph" in note for note in run.notes)


def test_kernels_of_a_graph_belong_to_the_operators_captured_into_it(torch: Any, tmp_path: Path) -> None:
    from joulediff.frameworks.torch.graphs.watch import watch_graphs

    watch_graphs()
    x = torch.randn(512, 512, device="cuda")
    graph, (y, z) = captured(torch, lambda: ((h := (x @ x).relu()), torch.sort(h, -1)[0].cumsum(-1)))

    def step() -> Any:
        graph.replay()
        return y * 2, z

    run = recorded(step, tmp_path)
    assert [op.name for op in run.ops] == [f"aten::{name}" for name in ("mm", "relu", "sort", "cumsum", "mul")]
    assert {(kernel.op, kernel.join) for kernel in run.kernels} == {(at, "op") for at in range(5)}
    assert run.ops[4].inputs == run.ops[1].outputs
    graph.replay()
    assert torch.equal(y, (x @ x).relu())


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_graphed_callables_have_their_operators_forward_and_backward(torch: Any, tmp_path: Path) -> None:
    from joulediff.frameworks.torch.graphs.watch import watch_graphs

    watch_graphs()
    layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()
    x = torch.randn(64, 256, device="cuda")
    run_layers = torch.cuda.make_graphed_callables(layers, (x,))

    def step() -> Any:
        layers.zero_grad()
        loss = run_layers(x).pow(2).sum()
        loss.backward()
        return loss

    step()
    run = recorded(step, tmp_path)
    names = [op.name for op in run.ops]
    assert names.count("aten::addmm") == 2
    assert "aten::gelu_backward" in names
    assert all(kernel.op is not None for kernel in run.kernels if kernel.kind != "cpu")


def test_signatures_on_the_device_are_those_of_the_cpu(torch: Any) -> None:
    from interpreter import sign

    torch.manual_seed(0)
    base = torch.randn(6, 7, 8, 9) * 3
    kinds = ["half", "bfloat16", "double", "int", "long", "short", "char", "bool"]
    tensors = [base, *(getattr(base, kind)() for kind in kinds), base.to(torch.uint8), torch.empty(0)]
    tensors += [torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0, 2.5]), torch.tensor(3.0)]
    tensors += [torch.randn(3, 4, dtype=torch.complex64), torch.randn(1_000_001), base.to(torch.float8_e4m3fn)]
    tensors += [torch.randn(3000, 700).t(), torch.randn(4, 128, 3, 12, 64)[:, :, 1].transpose(1, 2)]
    tensors += [torch.randn(4, 3, 32, 32).contiguous(memory_format=torch.channels_last)]
    tensors += [torch.randn(33_000_000), torch.randn(5000, 6600).half().t()]
    for tensor in tensors:
        views = [tensor]
        if tensor.shape == base.shape:
            views += [tensor.permute(2, 0, 3, 1), tensor[:, 1:4, ::2, 1:5], tensor[0, 0].t(), tensor.transpose(0, 3)]
            views += [tensor[:, :, :1].expand(6, 7, 8, 9).transpose(0, 1)]
        memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
        on_gpu = memory.cuda()
        for view in views:
            same = on_gpu.as_strided(view.shape, view.stride(), view.storage_offset())
            assert_same(sign(same), sign(view))


def test_strides_beyond_32_bits(torch: Any) -> None:
    from interpreter import sign

    memory = torch.zeros(2**32 + 2**20, dtype=torch.uint8, device="cuda")
    view = memory.as_strided((40, 3, 500), (1000, 2**31, 2))
    view.copy_(torch.randint(0, 100, (40, 3, 500)))
    assert view.stride(1) == 2**31
    assert_same(sign(view), sign(view.contiguous().cpu()))


def test_views_in_another_order_have_the_sums_and_their_own_sketch(torch: Any) -> None:
    from joulediff.frameworks.torch.capture.capture import capture_step

    x = torch.randn(200, 300, device="cuda")
    found = capture_step(lambda: (x.t(), x * 1, x.t().contiguous()))
    transposed, same, copied = (found.signatures[found.values[value].signature] for _, value in found.outputs)
    assert transposed.sum_x == same.sum_x
    assert_same(transposed, copied)
    assert_same(transposed, same, ordered=False)
    assert transposed.sketch != same.sketch


def test_capture_keeps_no_memory(torch: Any, tmp_path: Path) -> None:
    from joulediff.frameworks.torch.capture.capture import capture_step

    model, ids = gpt2(torch).half().eval(), torch.randint(0, 50257, (8, 512), device="cuda")

    def step() -> Any:
        with torch.no_grad():
            return model(ids).logits

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    plain = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    captured = capture_step(step)
    assert torch.cuda.max_memory_allocated() < 1.2 * plain
    assert len(captured.ops) > 70
    del captured
    torch.cuda.synchronize()
