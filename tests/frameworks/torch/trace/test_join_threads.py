"""Operators of other threads: the tasks of a trace are those of the captured step."""

from __future__ import annotations

from typing import Any

from joulediff.frameworks.torch.trace.chrome import task_mark, to_traced
from joulediff.frameworks.torch.trace.join import Joined, join
from joulediff.model.run import Op
from trace_builders import Work, call, make_op, make_ops, mark, render

WORKER, OTHER = 7, 8


def task(key: tuple[int, ...], *calls: Any) -> Any:
    return mark(task_mark(key), *calls)


def product(name: str) -> Any:
    return call("aten::matmul", call("aten::mm", Work(name)))


def products(count: int) -> list[Op]:
    return [make_op(number, "aten::mm", thread=number + 1) for number in range(count)]


def ops_of(joined: Joined) -> dict[str, int | None]:
    return {kernel.name: kernel.op for kernel in joined.kernels}


def test_a_task_is_found_in_whichever_thread_ran_it() -> None:
    ran = {WORKER: [task((2,), product("c")), task((0,), product("a"))], OTHER: [task((1,), product("b"))]}
    traced = to_traced(render(call("aten::relu", Work("r")), threads=ran))
    assert sorted(traced.tasks.values()) == [(0,), (1,), (2,)]
    ops = [*products(3), make_op(3, "aten::relu", thread=0)]
    joined = join(traced, ops, tasks=[(), (0,), (1,), (2,)])
    assert ops_of(joined) == {"a": 0, "b": 1, "c": 2, "r": 3}
    assert joined.notes == ()
    assert joined.agreed


def test_a_task_within_a_task_of_one_thread() -> None:
    ran = {WORKER: [task((0,), product("outer"), task((0, 0), product("inner")), call("aten::neg", Work("last")))]}
    traced = to_traced(render(threads=ran))
    ops = [make_op(0, "aten::mm", thread=1), make_op(1, "aten::mm", thread=2), make_op(2, "aten::neg", thread=1)]
    joined = join(traced, ops, tasks=[(), (0,), (0, 0)])
    assert ops_of(joined) == {"outer": 0, "inner": 1, "last": 2}


def test_a_thread_without_captured_operators_is_reported() -> None:
    ran = {WORKER: [call("aten::matmul", call("aten::mm")), call("aten::relu")]}
    joined = join(to_traced(render(call("aten::sin"), threads=ran)), make_ops("aten::sin", device="cpu"))
    found = sorted((kernel.name, kernel.op, kernel.join) for kernel in joined.kernels)
    assert found == [("aten::matmul", None, "none"), ("aten::relu", None, "none"), ("aten::sin", 0, "op")]
    assert joined.notes == ("2 operators ran in a thread that the recording does not reach, first aten::matmul",)
    assert not joined.agreed


def test_kernels_of_a_thread_that_is_not_reached_have_no_operator() -> None:
    joined = join(
        to_traced(render(call("aten::sin", Work("s")), threads={WORKER: [product("p")]})), make_ops("aten::sin")
    )
    assert ops_of(joined) == {"s": 0, "p": None}
    assert joined.notes == ("1 kernel ran outside of any captured operator, first p",)
