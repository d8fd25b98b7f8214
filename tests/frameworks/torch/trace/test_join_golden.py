"""Real traces of an H200 (`tests/golden/traces`, made by `record.py` there): everything joins."""

import gzip
import json
from collections import Counter

import pytest

import paths
from golden_files import find_golden
from joulediff.frameworks.torch.trace.chrome import to_traced
from joulediff.frameworks.torch.trace.join import is_compiled, join
from trace_builders import make_op

FOLDER = paths.GOLDEN / "traces"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in find_golden("traces/*.json.gz"))
# The stored operators have no values, which tell that an operator is a view.
VIEWS = ("aten::view", "aten::t", "aten::transpose", "aten::split", "aten::unsqueeze", "aten::expand")
MLP = ["transformer.h.0.mlp", "transformer.h.1.mlp"]


def load(name):
    """Return a traced step, its captured operators and its compiled modules."""
    found = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    columns = ("name", "thread", "device", "inference", "compiled", "forward", "module")
    rows = [dict(zip(columns, row, strict=True)) for row in found["ops"]]
    phases = ("forward", "backward")
    ops = [
        make_op(number, row.pop("name"), phase=phases[row["forward"] is not None], **row)
        for number, row in enumerate(rows)
    ]
    return to_traced(found["trace"]), ops, found["compiled_modules"]


def joined_of(name):
    traced, ops, modules = load(name)
    views = [op.id for op in ops if op.name in VIEWS]
    return join(traced, ops, compiled_modules=modules, views=views), ops


@pytest.mark.parametrize("name", NAMES)
def test_the_steps_agree_and_no_kernel_is_lost(name):
    traced, ops, modules = load(name)
    joined = join(traced, ops, compiled_modules=modules)
    assert joined.agreed
    device = [kernel for kernel in joined.kernels if kernel.kind != "cpu"]
    assert device
    assert Counter(k.name for k in device) == Counter(launch.kernel.name for launch in traced.launches)
    assert sum(k.duration_s for k in device) == pytest.approx(sum(ln.kernel.duration_s for ln in traced.launches))
    assert all(kernel.op is None or ops[kernel.op].device != "cpu" for kernel in device)
    assert all(0 <= kernel.start_s < traced.step_s for kernel in device)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("gpt2_nograd", {("kernel", "op"): 45, ("memset", "op"): 3}),
        ("gpt2_inference", {("kernel", "op"): 45, ("memset", "op"): 3}),
        ("gpt2_generate", {("kernel", "op"): 178, ("memcpy", "op"): 21, ("memset", "op"): 2}),
        ("gpt2_train", {("kernel", "op"): 237, ("memset", "op"): 5, ("cpu", "op"): 60}),
        ("gpt2_compiled", {("kernel", "op"): 13, ("kernel", "fused"): 13, ("memset", "op"): 3}),
        ("gpt2_compiled_train", {("kernel", "op"): 103, ("memset", "op"): 2, ("kernel", "fused"): 18}),
        (
            "streams",
            {("kernel", "op"): 8, ("memset", "op"): 1, ("memcpy", "op"): 4, ("cpu", "op"): 1, ("kernel", "none"): 3},
        ),
    ],
)
def test_every_kernel_has_its_operator(name, counts):
    joined, _ = joined_of(name)
    assert Counter((kernel.kind, kernel.join) for kernel in joined.kernels) == counts


def test_kernels_fit_their_operators():
    joined, ops = joined_of("gpt2_nograd")
    words = {
        "aten::addmm": "nvjet",
        "aten::native_layer_norm": "layer_norm",
        "aten::embedding": "gather",
        "aten::cat": "Cat",
    }
    found = [(ops[k.op].name, k.name) for k in joined.kernels if ops[k.op].name in words and k.kind == "kernel"]
    assert len(found) > 15
    assert all(words[op] in kernel or "splitK" in kernel for op, kernel in found)


def test_the_same_kernels_with_whole_and_with_decomposed_operators():
    whole, decomposed = joined_of("gpt2_inference")[0], joined_of("gpt2_nograd")[0]
    assert [kernel.name for kernel in whole.kernels] == [kernel.name for kernel in decomposed.kernels]


def test_generating_waits_where_it_looks_at_values():
    joined, ops = joined_of("gpt2_generate")
    assert Counter(ops[wait.op].name for wait in joined.waits) == {
        "aten::_local_scalar_dense": 7,
        "aten::lift_fresh": 3,
    }


def test_a_training_step_has_its_backward_in_another_thread():
    joined, ops = joined_of("gpt2_train")
    threads = Counter(ops[kernel.op].thread for kernel in joined.kernels if kernel.kind == "kernel")
    assert threads.keys() == {0, 1}
    assert {kernel.stream for kernel in joined.kernels if kernel.kind == "cpu"} == {0}


def test_compiled_modules_have_their_kernels_forward_and_backward():
    joined, ops = joined_of("gpt2_compiled_train")
    own = [kernel for kernel in joined.kernels if is_compiled(ops[kernel.op], ops)]
    assert {ops[kernel.op].module.rpartition(".")[0] for kernel in own} == set(MLP)
    assert {ops[kernel.op].phase for kernel in own} == {"forward", "backward"}


def test_a_compiled_kernel_has_the_operators_of_its_name():
    joined, ops = joined_of("gpt2_compiled")
    found = [
        [ops[op].name for op in (kernel.op, *kernel.members)]
        for kernel in joined.kernels
        if kernel.name.startswith("triton_poi_fused_add_mul_pow_tanh")
    ]
    gelu = [f"aten::{name}" for name in ("mul", "pow", "mul", "add", "mul", "tanh", "add", "mul")]
    assert found == [gelu, gelu]


def test_streams_copies_and_waits():
    joined, ops = joined_of("streams")
    assert {kernel.stream for kernel in joined.kernels if kernel.kind == "kernel"} == {7, 45}
    assert [(wait.name, None if wait.op is None else ops[wait.op].name) for wait in joined.waits] == [
        ("cudaStreamSynchronize", "aten::_local_scalar_dense"),
        ("cudaStreamSynchronize", "aten::_to_copy"),
        ("cudaDeviceSynchronize", None),
        ("cudaMemcpyAsync", "aten::_to_copy"),
        ("cudaStreamSynchronize", "aten::_to_copy"),
    ]
    assert [ops[kernel.op].name for kernel in joined.kernels if kernel.name == "add_one"] == ["triton::add_one"]
    assert [kernel.size_bytes for kernel in joined.kernels if kernel.kind == "memcpy"] == [4, 4000000, 4194304, 4194304]
