"""Operators that a step runs in other threads: recorded with their place, and with inputs for a replay."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from interpreter import to_run
from joulediff.frameworks.named_regions import region
from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.frameworks.torch.replay.inputs import KeptInputs, collect_inputs

WORKERS = 4


def names(found: Captured) -> list[str]:
    return [op.name.removeprefix("aten::") for op in found.ops]


def functions(found: Captured, op: int) -> list[str]:
    path, at = [], found.ops[op].frame
    while at is not None:
        path.append(found.frames[at].function.rpartition(".")[2])
        at = found.frames[at].parent
    return path[::-1]


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(WORKERS) as found:
        list(found.map(lambda _: time.sleep(0.001), range(WORKERS)))
        yield found


def test_a_pool_and_one_after_the_other_are_one_recording(pool: ThreadPoolExecutor) -> None:
    inputs = [torch.randn(16 + n, 16 + n) for n in range(8)]

    def work(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu_().sum()

    one = capture_step(lambda: sum(work(x) for x in inputs))
    for _ in range(3):
        other = capture_step(lambda: sum(list(pool.map(work, inputs))))
        mine, theirs = ([op.name for op in each.ops] for each in (one, other))
        assert sorted(mine) == sorted(theirs)
        tasks = [names(other)[at : at + 3] for at in range(0, 24, 3)]
        assert tasks == [["mm", "relu_", "sum"]] * 8
        forms = [other.values[op.inputs[0]].shape for op in other.ops if op.name == "aten::mm"]
        assert forms == [tuple(x.shape) for x in inputs], "in the order in which they were submitted"
        assert other.tasks == ((), *((n,) for n in range(8)))
        assert {op.thread for op in other.ops} == set(range(9))


def test_a_task_continues_the_place_that_started_it(pool: ThreadPoolExecutor) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with region("outer"):
                futures = [pool.submit(inner, x) for _ in range(2)]
            return futures[0].result() + futures[1].result()

    def inner(x: torch.Tensor) -> torch.Tensor:
        with region("inner"):
            return x.sin()

    net, x = Net(), torch.randn(3)
    found = capture_step(lambda: net(x))
    sine = next(op for op in found.ops if op.name == "aten::sin")
    assert (sine.region, sine.module, sine.module_type) == ("outer/inner", "", "Net")
    path = functions(found, sine.id)
    assert path[0] == "<lambda>"
    assert path[-1] == "inner"
    assert "forward" in path
    assert not {"_bootstrap_inner", "_worker"} & set(path), "how the pool runs a task is no part of the path"


def test_each_thread_has_its_own_modes(pool: ThreadPoolExecutor) -> None:
    x, both = torch.randn(4, 4, requires_grad=True), threading.Barrier(2)

    def plain() -> torch.Tensor:
        both.wait()
        return x @ x

    def without() -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            both.wait()
            return x @ x

    def step() -> list[torch.Tensor]:
        return [each.result() for each in (pool.submit(plain), pool.submit(without))]

    made: list[Any] = []
    products = [op for op in capture_step(lambda: made.extend(step())).ops if op.name == "aten::mm"]
    assert [(op.grad, op.autocast) for op in products] == [(True, None), (False, "cpu bfloat16")]
    assert [each.requires_grad for each in made] == [True, False]


def test_backward_operators_belong_to_the_forward_ones_of_their_thread(pool: ThreadPoolExecutor) -> None:
    weights = [torch.randn(3, requires_grad=True) for _ in range(WORKERS)]

    def train(at: int) -> None:
        function = torch.sin if at % 2 else torch.exp
        function(weights[at]).sum().backward()

    found = capture_step(lambda: list(pool.map(train, range(WORKERS))))
    backward = [op for op in found.ops if op.phase == "backward" and op.forward is not None]
    assert len(backward) >= 2 * WORKERS
    assert all(found.ops[op.forward].thread == op.thread for op in backward if op.forward is not None)


def test_an_exception_and_the_results_are_the_program_s(pool: ThreadPoolExecutor) -> None:
    error = ValueError("no")

    def fail() -> None:
        torch.ones(2).sin()
        raise error

    def step() -> None:
        future = pool.submit(fail)
        assert future.exception() is error
        with suppress(RuntimeError):
            pool.submit(torch.mm, torch.ones(2, 3), torch.ones(2, 3)).result()

    assert names(capture_step(step))[:2] == ["ones", "sin"]

    def stop() -> None:
        pool.submit(fail).result()

    with pytest.raises(ValueError, match="no") as raised:
        capture_step(stop)
    assert raised.value is error


def test_no_hook_stays_in_any_thread(pool: ThreadPoolExecutor) -> None:
    from torch.nn.modules import module

    hooks = (module._global_forward_hooks, module._global_forward_pre_hooks)
    counts, both = [len(each) for each in hooks], threading.Barrier(WORKERS)
    methods = ThreadPoolExecutor.submit, threading.Thread.start, threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    capture_step(lambda: list(pool.map(lambda _: both.wait() + torch.ones(2).sum().item(), range(WORKERS))))
    assert methods == (ThreadPoolExecutor.submit, threading.Thread.start, threading.Thread._bootstrap_inner)  # type: ignore[attr-defined]
    assert [len(each) for each in hooks] == counts
    modes = list(pool.map(lambda _: (both.wait(), _get_current_dispatch_mode())[1], range(WORKERS)))
    assert modes == [None] * WORKERS


def test_a_thread_that_outlives_the_step_is_recorded_up_to_its_end() -> None:
    ended, results, modes = threading.Event(), [], []
    begun = threading.Event()

    def work() -> None:
        torch.ones(3).sin()
        begun.set()
        ended.wait()
        results.append(torch.ones(3).exp())
        modes.append(_get_current_dispatch_mode())

    thread = threading.Thread(target=work)

    def step() -> torch.Tensor:
        thread.start()
        begun.wait()
        return torch.ones(3).cos()

    found = capture_step(step)
    ended.set()
    thread.join()
    assert names(found) == ["ones", "sin", "ones", "cos"]
    assert torch.equal(results[0], torch.ones(3).exp())


class Server:
    """A thread from before the step that waits for work."""

    def __init__(self, work: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.asked: queue.SimpleQueue[torch.Tensor | None] = queue.SimpleQueue()
        self.made: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()
        self.work = work
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while (x := self.asked.get()) is not None:
            self.made.put(self.work(x))

    def ask(self, x: torch.Tensor) -> torch.Tensor:
        self.asked.put(x)
        return self.made.get(timeout=60)

    def close(self) -> None:
        self.asked.put(None)
        self.thread.join(60)


def test_a_model_in_a_thread_that_waits_for_work_is_recorded() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    server = Server(model)
    modes: queue.SimpleQueue[object] = queue.SimpleQueue()
    try:
        with torch.no_grad():
            found = capture_step(lambda: server.ask(x) + 1)
        assert [name for name in names(found) if name != "detach"] == ["t", "addmm", "relu", "add"]
        assert [op.module for op in found.ops][:3] == ["0", "0", "1"]
        assert [op.thread for op in found.ops] == [1] * (len(found.ops) - 1) + [0]
        server.work = lambda each: (modes.put(_get_current_dispatch_mode()), each)[1]
        server.ask(x)
        assert modes.get(timeout=60) is None
    finally:
        server.close()


def test_inputs_for_a_replay_are_those_of_the_same_task(pool: ThreadPoolExecutor) -> None:
    inputs = [torch.full((8, 8), float(n)) for n in range(12)]

    def work(x: torch.Tensor) -> torch.Tensor:
        time.sleep(float(torch.rand(()).item()) * 0.002)  # another thread may be first each time
        return (x @ x).neg()

    def step() -> list[torch.Tensor]:
        return list(pool.map(work, inputs))

    captured = capture_step(step)
    run = to_run(captured)
    products = [op.id for op in run.ops if op.name == "aten::mm"]
    assert len(products) == len(inputs)
    for _ in range(10):
        found = collect_inputs(step, run, products, begin=lambda: None, tasks=captured.tasks)
        assert sorted(found) == products
        for number, op in enumerate(products):
            kept = found[op]
            assert isinstance(kept, KeptInputs)
            assert torch.equal(kept.tensors()[0], inputs[number])


def test_an_operator_that_fails_in_one_thread_moves_no_other_thread_s_inputs(pool: ThreadPoolExecutor) -> None:
    def work(n: int) -> torch.Tensor:
        x = torch.full((4, 4), float(n))
        with suppress(RuntimeError):
            torch.mm(x, torch.ones(3, 3))
        return x @ x

    def step() -> list[torch.Tensor]:
        return list(pool.map(work, range(6)))

    captured = capture_step(step)
    run = to_run(captured)
    products = [op.id for op in run.ops if op.name == "aten::mm"]
    assert len(products) == 6
    for _ in range(5):
        found = collect_inputs(step, run, products, begin=lambda: None, tasks=captured.tasks)
        kept = [found[op] for op in products]
        assert [each.tensors()[0][0, 0].item() for each in kept if isinstance(each, KeptInputs)] == [0, 1, 2, 3, 4, 5]
