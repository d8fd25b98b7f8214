"""Kernels and waits of a traced step, joined to the operators of a captured one."""

from dataclasses import replace

import pytest

from joulediff.frameworks.torch.trace.chrome import to_traced
from joulediff.frameworks.torch.trace.generated_code import Graph, Part
from joulediff.frameworks.torch.trace.join import join
from joulediff.frameworks.torch.trace.traced import GraphReplay
from trace_builders import GraphLaunch, Runtime, Work, call, make_op, make_ops, mark, render


def ops_of(joined):
    """Return the kernels by name with the operator each belongs to."""
    return {kernel.name: kernel.op for kernel in joined.kernels}


def test_a_kernel_belongs_to_the_operator_that_launched_it():
    traced = to_traced(
        render(
            call("aten::linear", call("aten::t", call("aten::transpose")), call("aten::addmm", Work("gemm"))),
            call("aten::relu", call("aten::clamp_min", Work("clamp"))),
        )
    )
    joined = join(traced, make_ops("aten::t", "aten::addmm", "aten::relu"))
    assert ops_of(joined) == {"gemm": 1, "clamp": 2}
    assert {kernel.join for kernel in joined.kernels} == {"op"}
    assert joined.agreed
    assert joined.notes == ()


def test_composite_operators_may_arrive_whole():
    traced = to_traced(render(call("aten::linear", call("aten::t"), call("aten::addmm", Work("gemm")))))
    joined = join(traced, make_ops("aten::linear", inference=True))
    assert ops_of(joined) == {"gemm": 0}
    assert joined.agreed


def test_whole_and_decomposed_operators_may_follow_each_other():
    linear = call("aten::linear", call("aten::t"), call("aten::addmm", Work("gemm")))
    ops = [
        make_op(0, "aten::linear", inference=True),
        make_op(1, "aten::t"),
        make_op(2, "aten::addmm"),
        make_op(3, "aten::linear", inference=True),
    ]
    joined = join(to_traced(render(linear, linear, linear)), ops)
    assert [kernel.op for kernel in joined.kernels] == [0, 2, 3]
    assert joined.agreed


def test_an_operator_may_be_composed_of_one_of_its_own_name():
    """`repeat_interleave` with a number repeats indices with the overload that takes a tensor."""
    traced = to_traced(
        render(
            call(
                "aten::repeat_interleave",
                call("aten::repeat_interleave", Work("repeat")),
                call("aten::index_select", Work("select")),
            ),
            call("aten::sum", call("aten::sum", Work("reduce"))),
        )
    )
    joined = join(traced, make_ops("aten::repeat_interleave", "aten::index_select", "aten::sum"))
    assert ops_of(joined) == {"repeat": 0, "select": 1, "reduce": 2}
    assert joined.agreed


def test_inner_operators_are_not_taken_for_those_that_follow():
    traced = to_traced(
        render(call("aten::embedding", call("aten::view"), call("aten::gather", Work("g"))), call("aten::view"))
    )
    joined = join(traced, make_ops("aten::embedding", "aten::view"))
    assert ops_of(joined) == {"g": 0}
    assert joined.agreed


def test_under_a_mode_autograd_adds_out_of_place_and_reshape_views():
    traced = to_traced(
        render(
            call("aten::reshape", call("aten::_reshape_alias")), call("aten::add_", Work("add")), call("aten::relu_")
        )
    )
    joined = join(traced, make_ops("aten::view", "aten::add", "aten::relu_"))
    assert ops_of(joined) == {"add": 1}
    assert joined.agreed


def test_a_new_tensor_owns_the_copy_that_filled_it():
    """`torch.tensor(3.0, device="cuda")`: the mode sees `lift_fresh`, after the copy."""
    made = [
        call("aten::empty"),
        call("aten::to", call("aten::_to_copy", call("aten::copy_", Work("copy"), Runtime("cudaStreamSynchronize")))),
        call("aten::lift_fresh"),
        call("aten::detach_", call("detach_")),
    ]
    joined = join(to_traced(render(call("aten::neg", Work("neg")), *made)), make_ops("aten::neg", "aten::lift_fresh"))
    assert ops_of(joined) == {"neg": 0, "copy": 1}
    assert [wait.op for wait in joined.waits] == [1]
    assert joined.agreed


def test_a_copy_that_is_an_operator_is_not_taken_by_a_new_tensor():
    traced = to_traced(render(call("aten::to", call("aten::_to_copy", Work("copy"))), call("aten::lift_fresh")))
    joined = join(traced, make_ops("aten::_to_copy", "aten::lift_fresh"))
    assert ops_of(joined) == {"copy": 0}


@pytest.mark.parametrize("name", ["aten::detach", "aten::is_complex", "profiler::_record_function_enter_new"])
def test_operators_that_the_profiler_does_not_show_are_no_difference(name):
    traced = to_traced(render(call("aten::relu", Work("relu")), call("aten::tanh", Work("tanh"))))
    joined = join(traced, make_ops(name, "aten::relu", name, "aten::tanh", name))
    assert ops_of(joined) == {"relu": 1, "tanh": 3}
    assert joined.agreed
    assert joined.notes == ()


def test_operators_of_the_traced_step_alone_are_reported():
    traced = to_traced(
        render(
            call("aten::embedding", Work("gather")),
            call("aten::mul", Work("extra")),
            call("aten::relu", Work("relu")),
            call("aten::mul", Work("mul")),
            call("aten::tanh", Work("tanh")),
            call("aten::mul", Work("more")),
        )
    )
    joined = join(traced, make_ops("aten::embedding", "aten::relu", "aten::mul", "aten::tanh"))
    assert ops_of(joined) == {"gather": 0, "extra": None, "relu": 1, "mul": 2, "tanh": 3, "more": None}
    assert not joined.agreed
    assert joined.notes == (
        "the traced step ran 2 operators that the captured one did not, first aten::mul after aten::embedding (op 0)",
        "2 kernels ran outside of any captured operator, first extra",
    )


def test_operators_of_the_captured_step_alone_are_reported():
    traced = to_traced(render(call("aten::embedding", Work("gather")), call("aten::relu", Work("relu"))))
    joined = join(traced, make_ops("aten::embedding", "aten::erf", "aten::relu"))
    assert ops_of(joined) == {"gather": 0, "relu": 2}
    assert not joined.agreed
    assert joined.notes == ("the captured step ran 1 operator that the traced one did not, first aten::erf (op 1)",)


def test_a_difference_at_the_very_begin_is_reported():
    joined = join(
        to_traced(render(call("aten::mul"), call("aten::add"), call("aten::mul"))), make_ops("aten::add", "aten::mul")
    )
    assert joined.notes == (
        "the traced step ran 1 operator that the captured one did not, first aten::mul at the begin",
    )


def test_composites_that_did_nothing_are_no_difference():
    """`aten::to` without effect and dropout in evaluation show up and run nothing."""
    traced = to_traced(render(call("aten::to"), call("aten::dropout"), call("aten::mul", Work("mul"))))
    ops = [make_op(0, "aten::mul"), make_op(1, "aten::to", inference=True)]
    assert join(traced, ops[:1]).agreed
    assert join(traced, ops).notes == (
        "the captured step ran 1 operator that the traced one did not, first aten::to (op 1)",
    )


def test_kernels_outside_of_any_call_are_kept():
    traced = to_traced(render(Work("graph node", by="cudaGraphLaunch", times=3), call("aten::mul", Work("mul"))))
    joined = join(traced, make_ops("aten::mul"))
    assert [(kernel.name, kernel.join) for kernel in joined.kernels] == [
        ("graph node", "none"),
        ("graph node", "none"),
        ("graph node", "none"),
        ("mul", "op"),
    ]
    assert joined.agreed
    assert joined.notes == ("3 kernels ran outside of any captured operator, first graph node",)


def test_without_captured_operators_everything_is_kept():
    traced = to_traced(render(call("aten::mul", Work("mul"), Runtime("cudaStreamSynchronize"))))
    joined = join(traced, ())
    assert [(kernel.name, kernel.join) for kernel in joined.kernels] == [("mul", "none")]
    assert [(wait.name, wait.op) for wait in joined.waits] == [("cudaStreamSynchronize", None)]


def test_an_empty_step_joins_to_nothing():
    joined = join(to_traced(render()), ())
    assert (joined.kernels, joined.waits, joined.notes, joined.agreed) == ((), (), (), True)
    assert not join(to_traced(render()), make_ops("aten::mul")).agreed


def test_waits_have_the_operator_that_waited():
    item = call(
        "aten::item", call("aten::_local_scalar_dense", Work("copy", "gpu_memcpy"), Runtime("cudaStreamSynchronize"))
    )
    traced = to_traced(render(call("aten::sum"), item, Runtime("cudaDeviceSynchronize")))
    joined = join(traced, make_ops("aten::sum", "aten::_local_scalar_dense"))
    assert [(wait.name, wait.op) for wait in joined.waits] == [
        ("cudaStreamSynchronize", 1),
        ("cudaDeviceSynchronize", None),
    ]


# Threads


def test_the_threads_of_the_two_steps_are_paired_by_their_operators():
    threads = {
        9: [call("aten::mm", Work("b1"), Runtime("cudaStreamSynchronize")), call("aten::sum", Work("b2"))],
        4: [call("aten::conv2d", Work("c1")), call("aten::mm", Work("c2")), call("aten::exp")],
    }
    traced = to_traced(render(call("aten::relu", Work("a")), threads=threads))
    names = [
        ("aten::relu", 0),
        ("aten::conv2d", 1),
        ("aten::mm", 2),
        ("aten::mm", 1),
        ("aten::sum", 2),
        ("aten::exp", 1),
    ]
    joined = join(traced, [make_op(at, name, thread=thread) for at, (name, thread) in enumerate(names)])
    assert ops_of(joined) == {"a": 0, "b1": 2, "b2": 4, "c1": 1, "c2": 3}
    assert [wait.thread for wait in joined.waits] == [2]
    assert joined.agreed


def test_a_thread_that_was_not_captured_gets_a_new_number():
    sync = Runtime("cudaStreamSynchronize")
    threads = {9: [call("aten::mm", Work("b")), sync], 4: [call("mine", Work("w")), sync]}
    traced = to_traced(render(call("aten::relu", Work("a")), threads=threads))
    ops = [make_op(0, "aten::relu"), make_op(1, "aten::mm", thread=3)]
    joined = join(traced, ops)
    assert ops_of(joined) == {"a": 0, "b": 1, "w": None}
    assert {wait.thread for wait in joined.waits} == {3, 4}


# Triton


def test_triton_kernels_are_joined_by_name_in_the_order_of_their_launches():
    traced = to_traced(
        render(
            Work("add_kernel", by="cuLaunchKernelEx"),
            call("aten::mul", Work("mul")),
            mark("mine", Work("add_kernel_0d1d2de", by="cuLaunchKernel")),
            call("mylib::scale", Work("add_kernel")),
        )
    )
    ops = make_ops("triton::add_kernel", "aten::mul", "triton::add_kernel", "mylib::scale")
    joined = join(traced, ops)
    assert sorted((kernel.op, kernel.name) for kernel in joined.kernels) == [
        (0, "add_kernel"),
        (1, "mul"),
        (2, "add_kernel_0d1d2de"),
        (3, "add_kernel"),
    ]
    assert joined.agreed


def test_a_different_number_of_triton_launches_is_reported():
    traced = to_traced(render(*[Work("add_kernel", by="cuLaunchKernelEx")] * 3))
    joined = join(traced, make_ops("triton::add_kernel"))
    assert [kernel.op for kernel in joined.kernels] == [0, None, None]
    assert not joined.agreed
    assert joined.notes[0] == "the captured step launched the Triton kernel add_kernel 1 times, the traced one 3 times"


# Compiled modules


def region(number, *children):
    graph = call("## Call CompiledFxGraph abc ##", *children)
    return call(f"Torch-Compiled Region: {number}/0", call("Pregraph bytecode"), graph)


COMPILED_OPS = [
    make_op(0, "aten::addmm", compiled=True, module="one.a"),
    make_op(1, "aten::tanh", module=""),
    make_op(2, "aten::addmm", compiled=True, module="two.a"),
    make_op(3, "aten::addmm", module="out"),
]


def compiled_step(*, first=()):
    return to_traced(
        render(
            call("TorchDynamo Cache Lookup"),
            region(0, call("triton_poi_0", Work("triton_poi_0")), call("aten::addmm", Work("gemm 0")), *first),
            call("aten::tanh", Work("tanh")),
            region(0, call("aten::addmm", Work("gemm 1"))),
            call("aten::linear", call("aten::addmm", Work("gemm 2"))),
        )
    )


def places_of(joined):
    return {kernel.name: (kernel.join, kernel.op, kernel.module) for kernel in joined.kernels}


def test_kernels_of_a_compiled_region_belong_to_its_operators():
    joined = join(compiled_step(), COMPILED_OPS, compiled_modules=["one", "two"])
    assert places_of(joined) == {
        "triton_poi_0": ("fused", 0, None),
        "gemm 0": ("op", 0, None),
        "tanh": ("op", 1, None),
        "gemm 1": ("op", 2, None),
        "gemm 2": ("op", 3, None),
    }
    assert joined.agreed


def test_what_runs_between_graphs_inside_a_region_is_part_of_it():
    """A graph break: what runs between the graphs, and the graphs that follow, lie inside the first region."""
    resumed = (call("aten::item", Work("copy")), region(1, Work("triton_poi_1")))
    joined = join(compiled_step(first=resumed), COMPILED_OPS, compiled_modules=["one", "two"])
    assert places_of(joined)["copy"][1] == 0
    assert places_of(joined)["triton_poi_1"][1] == 0
    assert places_of(joined)["gemm 1"] == ("op", 2, None)


def test_without_captured_operators_a_region_has_the_common_path_of_its_modules():
    def module_of(kernel, *modules):
        return places_of(join(compiled_step(), [make_op(0, "aten::tanh")], compiled_modules=modules))[kernel]

    modules = ["h.0.mlp", "h.0.attn", "h.0.mlp.act"]
    assert module_of("gemm 0", *modules) == ("module", None, "h.0")
    assert module_of("gemm 1", *modules) == ("module", None, "h.0")
    assert module_of("gemm 1", "one") == ("module", None, "one")
    assert module_of("gemm 1", "a", "b", "c") == ("module", None, "")
    assert module_of("gemm 1", "one", "two") == ("module", None, "two")


def test_a_compiled_function_outside_of_modules_has_its_operators():
    traced = to_traced(render(region(0, Work("triton_poi_0"))))
    joined = join(traced, [make_op(0, "aten::sin", compiled=True)])
    assert places_of(joined) == {"triton_poi_0": ("fused", 0, None)}
    assert places_of(join(traced, [])) == {"triton_poi_0": ("none", None, None)}


def test_the_backward_half_of_a_region_belongs_to_the_same_module():
    def forward(number):
        graph = call("## Call CompiledFxGraph f ##", Work(f"forward {number}"))
        return call("Torch-Compiled Region: 0/0", call("CompiledFunction", graph, sequence=number))

    def backward(number):
        graph = call("## Call CompiledFxGraph b ##", Work(f"backward {number}"))
        name = "CompiledFunctionBackward"
        return call(f"autograd::engine::evaluate_function: {name}", call(name, graph, sequence=number))

    traced = to_traced(
        render(
            forward(66),
            call("aten::tanh", Work("tanh")),
            forward(68),
            threads={9: [backward(68), call("TanhBackward0", call("aten::tanh_backward", Work("t"))), backward(66)]},
        )
    )
    ops = [
        make_op(0, "aten::addmm", compiled=True, module="one"),
        make_op(1, "aten::tanh"),
        make_op(2, "aten::addmm", compiled=True, module="two"),
        make_op(3, "aten::mm", thread=1, phase="backward", forward=2, module="two"),
        make_op(4, "aten::tanh_backward", thread=1, phase="backward", forward=1),
        make_op(5, "aten::mm", thread=1, phase="backward", forward=0, module="one"),
    ]
    joined = join(traced, ops, compiled_modules=["one", "two"])
    assert places_of(joined) == {
        "forward 66": ("module", None, "one"),
        "forward 68": ("module", None, "two"),
        "backward 68": ("module", None, "two"),
        "backward 66": ("module", None, "one"),
        "tanh": ("op", 1, None),
        "t": ("op", 4, None),
    }
    # The names of these kernels tell nothing, so the graphs cannot be told apart: only their modules are known.
    assert len(joined.notes) == 1


def test_each_graph_has_its_operators_forward_and_backward():
    def graph(kernel):
        return call("## Call CompiledFxGraph x ##", call(kernel, Work(kernel)))

    def backward(number, kernel):
        name = "CompiledFunctionBackward"
        return call(f"autograd::engine::evaluate_function: {name}", call(name, graph(kernel), sequence=number))

    traced = to_traced(
        render(
            call("Torch-Compiled Region: 0/0", graph("triton_poi_fused_sin_0")),
            call("Torch-Compiled Region: 1/0", graph("triton_poi_fused_cos_0")),
            threads={9: [backward(2, "triton_poi_fused_mul_sin_0"), backward(1, "triton_poi_fused_cos_mul_0")]},
        )
    )
    ops = [
        make_op(0, "aten::sin", compiled=True),
        make_op(1, "aten::cos", compiled=True),
        *(make_op(at, f"aten::{name}", thread=1, phase="backward", forward=1) for at, name in ((2, "sin"), (3, "mul"))),
        *(make_op(at, f"aten::{name}", thread=1, phase="backward", forward=0) for at, name in ((4, "cos"), (5, "mul"))),
    ]
    joined = join(traced, ops)
    assert {kernel.name: (kernel.op, kernel.members) for kernel in joined.kernels} == {
        "triton_poi_fused_sin_0": (0, ()),
        "triton_poi_fused_cos_0": (1, ()),
        "triton_poi_fused_mul_sin_0": (2, (3,)),
        "triton_poi_fused_cos_mul_0": (4, (5,)),
    }
    assert joined.agreed


def test_compiled_code_that_ran_eagerly_joins_like_the_rest():
    """Without a region in the trace the program did not use what it compiled."""
    traced = to_traced(render(call("aten::addmm", Work("gemm")), call("aten::tanh", Work("tanh"))))
    joined = join(traced, COMPILED_OPS[:2], compiled_modules=["one"])
    assert ops_of(joined) == {"gemm": 0, "tanh": 1}
    assert joined.agreed


# The processor


def test_operators_on_the_processor_are_its_kernels():
    traced = to_traced(
        render(call("aten::linear", call("aten::t"), call("aten::addmm", call("aten::copy_"))), call("aten::relu"))
    )
    joined = join(traced, make_ops("aten::t", "aten::addmm", "aten::relu", device="cpu"))
    assert [(k.name, k.kind, k.device, k.stream, k.op, k.join) for k in joined.kernels] == [
        ("aten::t", "cpu", "cpu", 0, 0, "op"),
        ("aten::addmm", "cpu", "cpu", 0, 1, "op"),
        ("aten::relu", "cpu", "cpu", 0, 2, "op"),
    ]
    addmm = next(c for c in traced.calls if c.name == "aten::addmm")
    assert (joined.kernels[1].start_s, joined.kernels[1].duration_s) == (addmm.start_s, addmm.duration_s)


def test_only_operators_on_the_processor_are():
    traced = to_traced(render(call("aten::ones"), call("aten::_to_copy", Work("copy")), call("aten::view")))
    ops = [make_op(0, "aten::ones", device="cpu"), make_op(1, "aten::_to_copy", device="cpu"), make_op(2, "aten::view")]
    joined = join(traced, ops)
    assert [(kernel.name, kernel.kind) for kernel in joined.kernels] == [("aten::ones", "cpu"), ("copy", "kernel")]


def test_work_of_the_processor_that_was_not_captured_is_kept():
    traced = to_traced(render(call("aten::mul"), call("aten::add"), call("aten::mul")))
    joined = join(traced, make_ops("aten::add", "aten::mul", device="cpu"))
    assert [(kernel.name, kernel.op) for kernel in joined.kernels] == [
        ("aten::mul", None),
        ("aten::add", 0),
        ("aten::mul", 1),
    ]


def test_graphs_on_the_processor_have_their_operators():
    traced = to_traced(render(region(0, call("aten::addmm")), call("aten::tanh")))
    ops = [make_op(0, "aten::addmm", device="cpu", compiled=True), make_op(1, "aten::tanh", device="cpu")]
    joined = join(traced, ops, compiled_modules=["one"])
    assert [(kernel.name[:12], kernel.join, kernel.op) for kernel in joined.kernels] == [
        ("## Call Comp", "fused", 0),
        ("aten::tanh", "op", 1),
    ]
    unknown = join(traced, [replace(ops[1], id=0)], compiled_modules=["one"])
    assert [(kernel.join, kernel.module) for kernel in unknown.kernels] == [("module", "one"), ("op", None)]


def test_operators_in_a_region_without_graphs_are_joined():
    eager = call("Torch-Compiled Region: 0/0", call("Pregraph bytecode"), call("aten::linear", call("aten::addmm")))
    joined = join(to_traced(render(eager)), [make_op(0, "aten::addmm", device="cpu", compiled=True, module="m.a")])
    assert [(kernel.name, kernel.op) for kernel in joined.kernels] == [("aten::linear", 0)]


def test_generated_kernels_on_the_processor_have_the_time_between_the_calls():
    code = Graph(
        (
            Part("cpp_fused_add_0", (), is_generated=True),
            Part("aten::mm", ("aten::mm",), is_generated=False),
            Part("cpp_fused_gelu_mul_1", (), is_generated=True),
        ),
        frozenset(["abc"]),
    )
    traced = to_traced(render(region(0, call("aten::view"), call("aten::mm", call("aten::copy_")))))
    names = ("aten::add", "aten::mm", "aten::gelu", "aten::mul")
    joined = join(traced, make_ops(*names, device="cpu", compiled=True), graphs=[code])
    assert [(k.name, k.join, k.op, k.members) for k in joined.kernels] == [
        ("cpp_fused_add_0", "fused", 0, ()),
        ("aten::mm", "op", 1, ()),
        ("cpp_fused_gelu_mul_1", "fused", 2, (3,)),
    ]
    graph = next(c for c in traced.calls if c.name.startswith("## Call"))
    assert sum(kernel.duration_s for kernel in joined.kernels) == pytest.approx(graph.duration_s)
    assert joined.notes == ()


# Graphs


GRAPH_CODE = Graph(
    (
        Part("triton_poi_fused_add_0", ("aten::add",), is_generated=True),
        Part("aten::mm", ("aten::mm",), is_generated=False),
        Part("aten::bmm", ("aten::bmm",), is_generated=False),
        Part("triton_poi_fused_gelu_mul_1", ("aten::gelu", "aten::mul"), is_generated=True),
        Part("aten::mm", ("aten::mm",), is_generated=False),
    ),
    frozenset(["abc"]),
)


def graph_launch(*names):
    """Return the launch of a graph with kernels of these names; a fill's begins with `Memset`."""
    return GraphLaunch(tuple((name, "gpu_memset" if name.startswith("Memset") else "kernel") for name in names))


def test_kernels_of_the_compilers_cuda_graph_are_named_or_lie_between_named_ones():
    kernels = ("triton_poi_fused_add_0", "gemm", "Memset", "batched", "triton_poi_fused_gelu_mul_1", "gemm", "splitK")
    traced = to_traced(render(region(0, call("aten::_foreach_copy_", Work("copy")), graph_launch(*kernels))))
    ops = make_ops("aten::add", "aten::mm", "aten::bmm", "aten::gelu", "aten::mul", "aten::mm", compiled=True)
    joined = join(traced, ops, graphs=[GRAPH_CODE])
    assert [(k.op, k.members) for k in joined.kernels if k.name != "copy"] == [
        (0, ()), (1, ()), (2, ()), (2, ()), (3, (4,)), (5, ()), (5, ()),
    ]  # fmt: skip


def replay_of(*nodes, **changes):
    plain = {"is_random": False, "is_known": True} | changes
    return GraphReplay(tuple(range(len(nodes))), nodes, **plain)


def test_kernels_of_a_replayed_graph_belong_to_the_operators_captured_into_it():
    traced = to_traced(render(graph_launch("gemm", "splitK", "gelu", "Memset", "sum"), call("aten::mul", Work("mul"))))
    ops = make_ops("aten::addmm", "aten::view", "aten::gelu", "aten::sum", "aten::mul")
    joined = join(traced, ops, replays=[replay_of(2, 0, 1, 2)])
    assert [(k.name, k.op, k.join) for k in joined.kernels] == [
        ("gemm", 0, "op"), ("splitK", 0, "op"), ("gelu", 2, "op"), ("Memset", 3, "op"), ("sum", 3, "op"),
        ("mul", 4, "op"),
    ]  # fmt: skip
    assert joined.agreed
    assert joined.notes == ()


def test_a_graph_whose_kernels_do_not_fit_has_all_operators_in_common():
    traced = to_traced(render(graph_launch("gemm", "gelu")))
    joined = join(traced, make_ops("aten::addmm", "aten::gelu"), replays=[replay_of(1, 2)])
    assert [(k.op, k.members, k.join) for k in joined.kernels] == [(0, (1,), "fused")] * 2


def test_a_graph_with_random_numbers_fills_in_its_seeds():
    traced = to_traced(
        render(
            call("aten::fill_", Work("other")),
            call("aten::add", Work("add")),
            call("aten::fill_", Work("seed")),
            call("aten::fill_", Work("offset")),
            graph_launch("dropout"),
        )
    )
    ops = [make_op(0, "aten::native_dropout"), make_op(1, "aten::fill_"), make_op(2, "aten::add")]
    joined = join(traced, ops, replays=[replay_of(1, is_random=True)])
    assert ops_of(joined) == {"other": 1, "add": 2, "seed": 0, "offset": 0, "dropout": 0}
    assert joined.agreed


def test_an_unknown_graph_is_one_row_and_says_so():
    traced = to_traced(render(graph_launch("one", "two")))
    unknown = GraphReplay((0,), None, is_random=False, is_known=False)
    joined = join(traced, make_ops("cuda_graph::replay"), replays=[unknown])
    assert {(k.op, k.members, k.join) for k in joined.kernels} == {(0, (), "op")}
    assert len(joined.notes) == 1
    more = join(
        traced, make_ops("cuda_graph::replay", "cuda_graph::replay"), replays=[unknown, replace(unknown, ops=(1,))]
    )
    assert len(more.notes) == 2
