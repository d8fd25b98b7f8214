"""Grouping a run: for any rows, nothing is lost and nothing counts twice."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_builders import gpu_run
from energy_builders import runs as energy_runs
from joulediff.energy.ledger import Books, open_books
from joulediff.frameworks.framework import place_of
from joulediff.model.run import Run
from joulediff.report.views.run.facts import line_of, op_times
from joulediff.report.views.run.ledger import PARTS, add_accounts
from joulediff.report.views.run.rows import NOT_JOINED, By, RunRow, fold_rows, group_rows, total_row
from joulediff.report.views.run.timeline import group_waits, trace_activity
from joulediff.report.views.short_texts import short_files
from run_builders import Gpt2, RunBuilder, domain_energy, energy, gpt2_run, measurement

BYS: tuple[By, ...] = ("op", "module", "line", "kernel")
MODULES = st.sampled_from([None, "", "m", "h.0.a", "h.1.a", "h.2.a", "h.3.a", "h.3", "m.h.10.b"])


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Any run of a few operators and kernels, joined in any way."""
    made = RunBuilder()
    frames: list[int | None] = [None]
    frames += [
        made.frame(f"{name}.py", line, "f", owner=owner) for name, line, owner in (("a", 1, None), ("b", 2, "torch"))
    ]
    frames.append(made.frame("b.py", 3, "g", owner="torch", parent=1))
    for _ in range(draw(st.integers(0, 8))):
        made.op(
            draw(st.sampled_from(["aten::mm", "aten::add"])),
            module=draw(MODULES),
            module_type=draw(st.sampled_from([None, "Linear"])),
            frame=draw(st.sampled_from(frames)),
            compiled=draw(st.booleans()),
            region=draw(st.sampled_from([None, "r", "r/s"])),
        )
    for _ in range(draw(st.integers(0, 12))):
        op = draw(st.none() | st.integers(0, len(made.ops) - 1)) if made.ops else None
        module = draw(MODULES) if op is None else None
        made.kernel(
            draw(st.sampled_from(["gemm", "add", "copy"])),
            draw(st.floats(0, 1e-2)),
            op=op,
            module=module,
            join="op" if op is not None else "none" if module is None else "module",
            start_s=draw(st.floats(0, 1e-1)),
            stream=draw(st.integers(0, 2)),
            device=draw(st.sampled_from(["cuda:0", "cuda:1"])),
        )
    return made.build(traced_s=draw(st.sampled_from([None, 0.0, 0.2])))


@given(runs(), st.sampled_from(BYS), st.integers(1, 5))
@settings(deadline=None)
def test_nothing_is_lost_and_nothing_counts_twice(run: Run, by: By, top: int) -> None:
    rows = group_rows(run, by, Books())
    for shown in (rows, fold_rows(rows, top, Books())):
        total = total_row(shown, Books())
        assert sorted(total.kernels) == list(range(len(run.kernels)))
        assert (total.kernel_s or 0.0) == pytest.approx(sum(k.duration_s for k in run.kernels))
        if by != "kernel":
            assert total.calls == len(run.ops)
    assert len(fold_rows(rows, top, Books())) <= top + 1
    assert list(rows) == sorted(rows, key=lambda row: -(row.kernel_s or 0.0))


@given(runs())
@settings(deadline=None)
def test_times_of_operators_are_those_of_their_kernels(run: Run) -> None:
    times = op_times(run)
    joined = sum(k.duration_s for k in run.kernels if k.op is not None)
    assert sum(time_s for time_s in times if time_s is not None) == pytest.approx(joined)
    assert len(times) == len(run.ops)


@given(runs())
@settings(deadline=None)
def test_busy_and_idle_make_the_step(run: Run) -> None:
    activities = trace_activity(run)
    assert {found.device for found in activities} == {kernel.device for kernel in run.kernels}
    for found in activities:
        kernels = [k for k in run.kernels if k.device == found.device]
        assert found.busy_s + found.idle_s == pytest.approx(found.span_s)
        assert found.busy_s <= sum(k.duration_s for k in kernels) + 1e-12
        assert found.busy_s >= max(k.duration_s for k in kernels) - 1e-12
        assert found.span_s >= (run.traced_s or 0.0)
        # By brute force: the moments at which something ran.
        edges = sorted({0.0, found.span_s, *(k.start_s for k in kernels), *(k.start_s + k.duration_s for k in kernels)})
        busy_s = sum(
            b - a
            for a, b in pairwise(edges)
            if any(k.start_s <= (a + b) / 2 <= k.start_s + k.duration_s for k in kernels)
        )
        assert found.busy_s == pytest.approx(busy_s, abs=1e-9)
        if found.largest_gap is not None:
            assert found.largest_gap.duration_s <= found.idle_s + 1e-12


@given(runs(), st.floats(0.001, 5.0), st.floats(0.0, 200.0))
@settings(deadline=None)
def test_the_books_close(run: Run, joules: float, rest_w: float) -> None:
    domains = {f"gpu{n}": domain_energy(joules * (n + 1), 6.2e-3, rest_w) for n in range(2)}
    accounts = open_books(replace(run, measurement=measurement(domains=domains))).accounts
    total = add_accounts(accounts)
    assert total is not None
    assert total.metered.joules == pytest.approx(3 * joules)
    parts = [getattr(total, part) for part in PARTS]
    if total.unexplained is not None:
        assert sum(part.joules for part in parts if part is not None) == pytest.approx(3 * joules)
    assert (total.operators is None) == any(account.operators is None for account in accounts)


@given(energy_runs(), st.sampled_from(BYS), st.integers(1, 3))
@settings(deadline=None)
def test_no_energy_is_lost_and_the_most_comes_first(run: Run, by: By, top: int) -> None:
    books = open_books(run)
    rows = group_rows(run, by, books)
    every = books.total(range(len(run.kernels)))
    for shown in (rows, fold_rows(rows, top, books)):
        total = total_row(shown, books)
        joules = [row.energy.joules for row in shown if row.energy is not None]
        assert (total.energy is None) == (every is None) == (not joules)
        if total.energy is not None and every is not None:
            assert sum(joules) == pytest.approx(every.joules)
            assert total.energy.low == pytest.approx(every.low)
            assert total.energy.high == pytest.approx(every.high)
    ranked = [0.0 if row.energy is None else row.energy.joules for row in rows]
    assert ranked == pytest.approx(sorted(ranked, reverse=True))


def test_the_power_of_a_row_is_its_energy_over_its_time() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("add", 2e-3, 1))
    first, second = run.kernels
    at_once = replace(run, kernels=(first, replace(second, start_s=first.start_s)))
    # Both ran in the same 2 ms, so each has half of the time and half of the energy.
    rows = group_rows(at_once, "kernel", open_books(at_once))
    assert len(rows) == 2
    for row in rows:
        assert row.energy is not None
        assert row.power_w == pytest.approx(row.energy.joules / 1e-3)
    assert RunRow("a view", "", 1, (), 0.0).power_w is None


@pytest.mark.parametrize(
    ("source", "share", "said"),
    [
        ("replayed", 1.0, "replayed"),
        ("attributed", 0.9999, "99% replayed"),
        ("attributed", 0.004, "attributed"),
        ("attributed", 0.0, "attributed"),
        ("estimated", 1.0, "estimated"),
        ("attributed", None, "attributed"),
    ],
)
def test_how_a_row_is_known(source: Any, share: float | None, said: str) -> None:
    assert RunRow("r", "", 1, (0,), 1e-3, energy(1.0, 0.1, source), share).source == said
    assert RunRow("r", "", 1, (0,), 1e-3).source == ""


def names(run: Run, by: By) -> dict[str, Any]:
    return {row.name: row for row in group_rows(run, by, Books())}


def test_layers_are_one_row_and_a_few_modules_are_not() -> None:
    assert "transformer.h.*.mlp.c_fc" in names(gpt2_run(4), "module")
    assert {"transformer.h.0.mlp.c_fc", "transformer.h.2.mlp.c_fc"} <= set(names(gpt2_run(3), "module"))
    made = RunBuilder()
    for n in range(4):
        made.op("aten::mm", module=f"experts.{n}.w1")
        made.op("aten::mm", module=f"block{n}.w2")  # a number within a word is part of the name
    assert {row.where for row in group_rows(made.build(), "op", Books())} == {
        "experts.*.w1",
        *(f"block{n}.w2" for n in range(4)),
    }


def test_modules_of_several_types_are_no_layers() -> None:
    made = RunBuilder()
    for n, kind in enumerate(["Conv2d", "ReLU"] * 4 + ["Linear"]):
        made.op("aten::work", module=f"features.{n}", module_type=kind)
    rows = group_rows(made.build(), "module", Books())
    assert {(row.name, row.where, row.calls) for row in rows} == {
        ("features.*", "Conv2d", 4),
        ("features.*", "ReLU", 4),
        ("features.8", "Linear", 1),
    }
    assert sorted(row.calls for row in group_rows(made.build(), "op", Books())) == [1, 4, 4]


def test_numbers_alone_are_kept() -> None:
    made = RunBuilder()
    for n in range(5):
        made.op("aten::mm", module=f"{n}", module_type="Linear")
        made.op("aten::mm", module=f"{n}.1", module_type="Linear")
        made.op("aten::mm", module=f"{n}.fc", module_type="Linear")
    assert set(names(made.build(), "module")) == {*(f"{n}" for n in range(5)), *(f"{n}.1" for n in range(5)), "*.fc"}


def test_kernels_without_an_operator_have_rows() -> None:
    made = RunBuilder()
    made.op("aten::mm", module="h.0.mlp.fc", compiled=True)
    made.op("aten::gelu", module="h.0.mlp.act", compiled=True)
    made.op("aten::add", module="other", compiled=True)
    made.kernel("fused", 2e-3, module="h.0.mlp", join="module")
    made.kernel("stray", 1e-3)
    found = names(made.build(), "op")
    assert set(found) == {"compiled: h.0.mlp", NOT_JOINED, "aten::add"}
    assert (found["compiled: h.0.mlp"].calls, found["compiled: h.0.mlp"].kernel_s) == (2, 2e-3)
    assert (found[NOT_JOINED].calls, found[NOT_JOINED].kernel_s) == (0, 1e-3)
    assert found["aten::add"].kernel_s is None  # in a compiled region that the trace does not show


def test_a_compiled_model_takes_all_its_operators() -> None:
    made = RunBuilder()
    made.op("aten::mm", module="a.b", compiled=True)
    made.op("aten::mm", module=None, compiled=True)
    made.kernel("fused", 2e-3, module="", join="module")
    assert names(made.build(), "op")["compiled: (the model)"].calls == 2


def test_a_row_by_kernel_names_who_launched_it() -> None:
    made = RunBuilder()
    add, mul = made.op("aten::add"), made.op("aten::mul")
    for op in (add, add, mul):
        made.kernel("elementwise", 1e-3, op=op)
    made.kernel("stray", 1e-3)
    for layer in range(4):
        made.kernel("fused", 1e-3, module=f"h.{layer}", join="module")
    found = names(made.build(), "kernel")
    assert found["elementwise"].where == "aten::add and 1 more"
    assert found["stray"].where == NOT_JOINED
    assert found["fused"].where == "compiled: h.*"


def test_a_line_is_the_innermost_outside_of_the_framework() -> None:
    made = RunBuilder()
    user = made.frame("train.py", 7, "step")
    library = made.frame("transformers/activations.py", 56, "forward", owner="transformers", parent=user)
    torch = made.frame("torch/nn/functional.py", 99, "gelu", owner="torch", parent=library)
    forward = made.op("aten::gelu", frame=torch)
    made.op("aten::gelu_backward", forward=forward, phase="backward")
    made.op("aten::lonely")
    made.op("aten::inside", frame=made.frame("torch/optim/adam.py", 5, "step", owner="torch"))
    run = made.build()
    assert [line and line.line for line in (line_of(run, n) for n in range(4))] == [56, 56, None, 5]
    found = names(run, "line")
    assert found["activations.py:56"].calls == 2
    assert found["(no line)"].calls == 1


@pytest.mark.parametrize("thread", [0, 1])
def test_a_backward_written_in_python_has_its_own_line(thread: int) -> None:
    made = RunBuilder()
    forward = made.op("aten::exp", frame=made.frame("train.py", 6, "F.forward"))
    call = made.frame("train.py", 15, "step")
    # On a CPU the engine runs in the thread that called it, on a GPU in one of its own: a path of its own.
    engine = made.frame("torch/graph.py", 9, "_engine_run_backward", owner="torch", parent=call) if not thread else None
    apply = made.frame("torch/function.py", 325, "BackwardCFunction.apply", owner="torch", parent=engine)
    own = made.frame("train.py", 10, "F.backward", parent=apply)
    library = made.frame("liger/ops.py", 20, "backward", owner="liger", parent=apply)
    for frame in (own, library, apply, engine):
        made.op("aten::mul", frame=frame, forward=forward, phase="backward", thread=thread)
    run = made.build()
    assert [line and line.line for line in (line_of(run, n) for n in range(1, 5))] == [10, 20, 6, 6]
    assert [line and line.line for line in (place_of(run, n) for n in range(1, 5))] == [10, 6, 6, 6]


def test_source_text_stands_beside_its_line() -> None:
    found = names(Gpt2(1).build(), "line")
    assert found["activations.py:56"].where.startswith("return 0.5 * input")
    assert found["modeling_gpt2.py:311"].where == "forward"  # no text recorded: its function


def test_files_of_the_same_name_keep_a_folder() -> None:
    assert short_files(["a/x.py", "b/x.py", "c/y.py"]) == {"a/x.py": "a/x.py", "b/x.py": "b/x.py", "c/y.py": "y.py"}


def test_waits_of_one_line_are_one() -> None:
    made = RunBuilder()
    op = made.op("aten::item", frame=made.frame("a.py", 4, "f"))
    made.wait("cudaStreamSynchronize", 1e-3, op=op)
    made.wait("cudaStreamSynchronize", 2e-3, op=op)
    made.wait("cudaDeviceSynchronize", 5e-3)
    worst, other = group_waits(made.build())
    assert (worst.name, worst.frame) == ("cudaDeviceSynchronize", None)
    assert other.calls == 2
    assert other.wait_s == pytest.approx(3e-3)


def test_without_a_trace_no_time_is_known() -> None:
    run = replace(gpt2_run(1), kernels=(), traced_s=None)
    assert {row.kernel_s for row in group_rows(run, "op", Books())} == {None}
    assert total_row(group_rows(run, "op", Books()), Books()).kernel_s is None
    traced = replace(run, traced_s=0.1)  # traced, and nothing ran: that is known
    assert {row.kernel_s for row in group_rows(traced, "op", Books())} == {0.0}


def test_many_operators_take_no_time() -> None:
    run = gpt2_run(300)
    begin_s = time.perf_counter()
    books = open_books(run)
    for by in BYS:
        group_rows(run, by, books)
    assert time.perf_counter() - begin_s < 3.0


def test_operators_of_one_compiled_kernel_are_one_row() -> None:
    made = RunBuilder()
    for layer in range(2):
        first = made.op("aten::mul", module=f"h.{layer}.act", compiled=True)
        others = tuple(made.op(f"aten::{name}", module=f"h.{layer}.act", compiled=True) for name in ("pow", "tanh"))
        made.kernel("triton_poi_fused_mul_pow_tanh_0", 1e-3, op=first, join="fused", members=others)
        made.kernel("gemm", 2e-3, op=made.op("aten::mm", module="head", compiled=True), join="op")
    unneeded = made.op("aten::dropout", compiled=True)
    run = made.build()
    rows = [(row.name, row.where, row.calls, len(row.kernels)) for row in group_rows(run, "op", Books()) if row.kernels]
    assert rows == [
        ("aten::mm", "head", 2, 2),
        ("mul, pow, tanh", "h.0.act", 3, 1),
        ("mul, pow, tanh", "h.1.act", 3, 1),
    ]
    assert op_times(run)[unneeded] == 0.0
    assert op_times(run)[1] is None
