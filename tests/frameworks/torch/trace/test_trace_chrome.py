"""Reading traces of PyTorch's profiler: the calls, kernels and waits that belong to the step."""

import json
from pathlib import Path

import pytest

from joulediff.frameworks.torch.trace.chrome import OUR_SYNC, STEP, read_trace, to_traced
from joulediff.model.errors import JoulediffError
from trace_builders import PROCESS, STEP_THREAD, Renderer, Runtime, Work, call, mark, render


def names_of(traced):
    return [call.name for call in traced.calls]


def launcher_of(traced, launch):
    return None if launch.call is None else traced.calls[launch.call].name


def test_calls_nest_as_they_ran():
    traced = to_traced(
        render(call("aten::linear", call("aten::t", call("aten::transpose")), call("aten::addmm")), call("aten::relu"))
    )
    assert names_of(traced) == ["aten::linear", "aten::t", "aten::transpose", "aten::addmm", "aten::relu"]
    assert [c.parent for c in traced.calls] == [None, 0, 1, 0, None]
    assert [c.end for c in traced.calls] == [4, 3, 3, 4, 5]
    assert all(c.thread == 0 for c in traced.calls)


def test_times_count_from_the_begin_of_the_step():
    traced = to_traced(render(call("aten::relu", Work("relu", duration_us=5.0))))
    assert traced.calls[0].start_s == pytest.approx(0.5e-6, abs=1e-9)
    (launch,) = traced.launches
    assert launch.start_s == pytest.approx(0.75e-6, abs=1e-9)
    assert launch.kernel.start_s == pytest.approx(2.75e-6, abs=1e-9)
    assert launch.kernel.duration_s == pytest.approx(5e-6)
    assert traced.step_s == pytest.approx(12.75e-6, abs=2e-9)


def test_a_kernel_has_the_facts_of_the_trace():
    work = Work(
        "gemm", device=1, stream=20, arguments={"grid": [4096, 1, 1], "block": [96, 2, 1], "registers per thread": 32}
    )
    copy = Work("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", "cudaMemcpyAsync", arguments={"bytes": 4096})
    fill = Work("Memset (Device)", "gpu_memset", "cudaMemsetAsync", arguments={"bytes": 4})
    gemm, copied, filled = (launch.kernel for launch in to_traced(render(work, copy, fill)).launches)
    assert (gemm.name, gemm.kind, gemm.device, gemm.stream) == ("gemm", "kernel", "cuda:1", 20)
    assert (gemm.grid, gemm.block, gemm.size_bytes) == ((4096, 1, 1), (96, 2, 1), None)
    assert (gemm.op, gemm.module, gemm.join) == (None, None, "none")
    assert (copied.kind, copied.device, copied.size_bytes) == ("memcpy", "cuda:0", 4096)
    assert (filled.kind, filled.size_bytes, filled.grid) == ("memset", 4, None)


def test_a_kernel_belongs_to_the_innermost_call_that_launched_it():
    traced = to_traced(
        render(call("aten::linear", call("aten::addmm", Work("gemm")), Work("bias")), Work("alone"), call("aten::relu"))
    )
    assert [launcher_of(traced, launch) for launch in traced.launches] == ["aten::addmm", "aten::linear", None]


def test_the_warm_up_is_left_out_with_the_kernels_it_launched():
    renderer = Renderer()
    renderer.step({STEP_THREAD: [call("aten::mul", Work("late", duration_us=500.0))]}, name="joulediff.warm")
    renderer.step({STEP_THREAD: [call("aten::add", Work("last", duration_us=500.0))]})
    traced = to_traced(renderer.trace())
    assert names_of(traced) == ["aten::add"]
    (launch,) = traced.launches
    assert launch.kernel.name == "last"
    assert launch.kernel.start_s > traced.step_s, "it ran behind the warm-up's kernel, after the step's end"


def test_kernels_are_in_the_order_of_their_launches():
    slow, quick = Work("slow", stream=7, duration_us=90.0), Work("quick", stream=8)
    traced = to_traced(render(slow, Work("behind", stream=7), quick))
    assert [launch.kernel.name for launch in traced.launches] == ["slow", "behind", "quick"]


def test_a_replayed_graph_launches_many_kernels_at_once():
    traced = to_traced(render(mark("replay", Work("node", by="cudaGraphLaunch", times=5))))
    assert [launch.kernel.name for launch in traced.launches] == ["node"] * 5
    assert {launcher_of(traced, launch) for launch in traced.launches} == {"replay"}
    assert len({launch.kernel.start_s for launch in traced.launches}) == 5


def test_threads_are_numbered_by_their_first_call():
    renderer = Renderer()
    renderer.step({77: [call("c", call("d"))], 55: [call("e")], STEP_THREAD: [call("a"), call("b")]})
    traced = to_traced(renderer.trace())
    assert [(c.name, c.thread) for c in traced.calls] == [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2)]


def test_a_thread_that_only_waits_has_a_number_too():
    traced = to_traced(render(call("a"), threads={55: [Runtime("cudaStreamSynchronize")]}))
    assert [pause.wait.thread for pause in traced.pauses] == [1]


def test_other_processes_are_left_out():
    ours, theirs = Renderer(), Renderer(process=PROCESS + 1)
    ours.step({STEP_THREAD: [call("aten::add", Work("ours"))]})
    theirs.number = 1000
    theirs.step({STEP_THREAD: [call("aten::mul", Work("theirs"))]}, name="another step")
    traced = to_traced({"traceEvents": theirs.events + ours.events})
    assert names_of(traced) == ["aten::add"]
    assert [launch.kernel.name for launch in traced.launches] == ["ours"]


@pytest.mark.parametrize(
    "name",
    [
        "cudaDeviceSynchronize",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cudaStreamSynchronize_ptsz",
        "cuStreamSynchronize",
        "cuCtxSynchronize",
        "hipDeviceSynchronize",
    ],
)
def test_a_synchronisation_is_a_wait(name):
    traced = to_traced(render(call("aten::item", call("aten::_local_scalar_dense", Runtime(name, host_us=30.0)))))
    (pause,) = traced.pauses
    assert (pause.wait.name, pause.wait.thread, pause.wait.op) == (name, 0, None)
    assert pause.wait.duration_s == pytest.approx(30e-6)
    assert traced.calls[pause.call].name == "aten::_local_scalar_dense"


@pytest.mark.parametrize(
    "name", ["cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventRecord", "cudaStreamIsCapturing"]
)
def test_other_calls_of_the_runtime_are_no_waits(name):
    assert to_traced(render(Runtime(name))).pauses == ()


@pytest.mark.parametrize(
    ("by", "copy", "waits"),
    [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
        ("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)", False),
        ("cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)", False),
        ("cudaMemcpy", "Memcpy DtoH (Device -> Pageable)", True),
        ("cudaMemcpy", "Memcpy HtoD (Pageable -> Device)", True),
        ("cudaMemcpy", "Memcpy DtoD (Device -> Device)", False),
        ("cuMemcpyDtoH_v2", "Memcpy DtoH (Device -> Pinned)", True),
    ],
)
def test_a_copy_waits_where_the_host_needs_the_data(by, copy, waits):
    assert bool(to_traced(render(Work(copy, "gpu_memcpy", by))).pauses) == waits


def test_a_wait_inside_a_wait_counts_once():
    renderer = Renderer()
    renderer.step({STEP_THREAD: [Runtime("cudaMemcpy", host_us=40.0)]})
    outer = next(event for event in renderer.events if event["name"] == "cudaMemcpy")
    inner = outer | {"name": "cuStreamSynchronize", "ts": outer["ts"] + 5, "dur": 20.0, "cat": "cuda_driver"}
    traced = to_traced({"traceEvents": [*renderer.events, inner]})
    assert [pause.wait.name for pause in traced.pauses] == ["cudaMemcpy"]


def test_our_own_fence_is_no_wait_of_the_program():
    own = Runtime("cudaDeviceSynchronize", host_us=50.0)
    warm, traced = Renderer(), [call("aten::add", Runtime("cudaStreamSynchronize")), mark(OUR_SYNC, own)]
    warm.step({STEP_THREAD: [call("aten::add"), mark(OUR_SYNC, own)]}, name="joulediff.warm")
    warm.step({STEP_THREAD: traced})
    found = to_traced(warm.trace())
    assert [pause.wait.name for pause in found.pauses] == ["cudaStreamSynchronize"]
    assert names_of(found) == ["aten::add"]
    assert found.step_s > 50e-6, "the step ends when the device is done"


def test_a_kernel_without_its_launch_counts_if_it_ran_in_the_step():
    trace = render(call("aten::add", Work("inside")), call("aten::mul"))
    events = [event for event in trace["traceEvents"] if event["cat"] != "cuda_runtime"]
    kernel = next(event for event in events if event["cat"] == "kernel")
    add = next(event for event in events if event["name"] == "aten::add")
    kernel["args"] = {"External id": add["args"]["External id"]}
    before = kernel | {"name": "before", "ts": kernel["ts"] - 1000}
    traced = to_traced({"traceEvents": [*events, before]})
    (launch,) = traced.launches
    assert (launch.kernel.name, launch.kernel.device, launch.kernel.stream) == ("inside", "cuda:0", 7)
    assert launcher_of(traced, launch) == "aten::add"


def test_missing_and_odd_fields_are_no_obstacle():
    odd = [
        None,
        "text",
        {},
        {"ph": "X", "cat": "kernel"},
        {"ph": "X", "cat": "kernel", "name": "no time", "ts": "soon"},
        {"ph": "M", "cat": "cpu_op", "name": "metadata", "ts": 1.0},
        {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "ts": 1.0, "dur": 5.0},
    ]
    trace = render(call("aten::add", Work("kernel", arguments={"grid": [1, "x", 1], "block": 3})))
    for event in trace["traceEvents"]:
        if event["cat"] == "cpu_op":
            event["args"] = None
    bare = {"ph": "X", "cat": "gpu_memset", "pid": 2, "tid": "stream", "ts": trace["traceEvents"][0]["ts"]}
    traced = to_traced({"traceEvents": [*odd, *trace["traceEvents"], bare]})
    assert names_of(traced) == ["aten::add"]
    kernels = {launch.kernel.kind: launch.kernel for launch in traced.launches}
    assert kernels["kernel"].grid is None
    assert kernels["kernel"].block is None
    assert (kernels["memset"].device, kernels["memset"].stream, kernels["memset"].duration_s) == ("cuda:2", 0, 0.0)


@pytest.mark.parametrize("trace", [{}, {"traceEvents": None}, {"traceEvents": []}])
def test_a_trace_without_the_step_says_so(trace):
    with pytest.raises(JoulediffError, match=r"no joulediff\.step"):
        to_traced(trace)


def test_a_step_in_which_nothing_happened_is_empty():
    traced = to_traced(render())
    assert (traced.calls, traced.launches, traced.pauses) == ((), (), ())
    assert traced.step_s > 0


def test_a_file_is_read_with_control_characters_in_names(tmp_path: Path):
    text = json.dumps(render(call("a name"))).replace("a name", "a\tname")
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode())
    assert names_of(read_trace(path)) == ["a\tname"]


@pytest.mark.parametrize("text", ["", "{", "[1, 2]"])
def test_a_broken_file_says_so(tmp_path: Path, text: str):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(JoulediffError, match="profiler's trace"):
        read_trace(path)


def test_of_several_steps_the_middle_one_by_its_time_counts():
    rows = [
        {"ph": "X", "cat": "user_annotation", "name": STEP, "pid": 1, "tid": 1, "ts": start, "dur": took}
        for start, took in ((0, 50.0), (100, 90.0), (200, 60.0), (300, 55.0))
    ]
    rows += [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::op{start}", "pid": 1, "tid": 1, "ts": start + 1, "dur": 2}
        for start in (0, 100, 200, 300)
    ]
    traced = to_traced({"traceEvents": rows})
    assert traced.step_s == pytest.approx(55e-6)
    assert names_of(traced) == ["aten::op300"]
