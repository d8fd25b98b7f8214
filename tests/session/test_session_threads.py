"""Recording a step that works in several threads: operators, their joules, and what could not be seen."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from joulediff.energy.ledger import open_books
from joulediff.energy.unseen import find_unseen
from joulediff.model.run import Run
from joulediff.session.record import record

QUICK: dict[str, Any] = {"seconds": 0.1, "wait_s": 0.0, "meter": "estimated", "replay_seconds": 5.0}

pytestmark = pytest.mark.usefixtures("short_idle")


@pytest.fixture(scope="module")
def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(64, 64) for _ in range(4)]


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def check_products(run: Run) -> None:
    products = [op for op in run.ops if op.name == "aten::mm"]
    assert len(products) == 4
    kernels = [kernel for kernel in run.kernels if kernel.op in {op.id for op in products}]
    assert sorted(kernel.op for kernel in kernels if kernel.op is not None) == [op.id for op in products]
    books = open_books(run)
    assert find_unseen(run, books) is None
    assert books.total(range(len(run.kernels))) is not None
    assert [replay.inputs for replay in run.replays] == ["real"]


def test_a_pool_made_before_the_step(inputs: list[torch.Tensor]) -> None:
    with ThreadPoolExecutor(4) as pool:
        run = record(lambda: list(pool.map(product, inputs)), **QUICK)
    assert [each.status for each in run.passes] == ["done"] * 5
    assert run.notes == ()
    check_products(run)


def test_a_pool_made_in_the_step(inputs: list[torch.Tensor]) -> None:
    def step() -> list[torch.Tensor]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(product, inputs))

    check_products(record(step, **QUICK))


def test_an_exception_in_a_worker_is_that_of_the_step() -> None:
    error = ValueError("no")

    def fail() -> None:
        raise error

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="no") as raised:
        record(lambda: pool.submit(fail).result(), **QUICK)
    assert raised.value is error


def serve(asked: queue.SimpleQueue[Any], made: queue.SimpleQueue[Any], work: Callable[[Any], Any]) -> None:
    while (x := asked.get()) is not None:
        made.put(work(x))


def test_work_of_a_thread_that_cannot_be_reached_is_reported(inputs: list[torch.Tensor]) -> None:
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=serve, args=(asked, made, product))
    thread.start()

    def step() -> list[torch.Tensor]:
        for x in inputs:
            asked.put(x)
        return [made.get() for _ in inputs]

    try:
        run = record(step, **QUICK)
    finally:
        asked.put(None)
        thread.join()
    found = find_unseen(run, open_books(run))
    assert found is not None
    assert (found.kernels, found.name, found.time_share) == (4, "aten::matmul", 1.0)
    assert found.share is not None
    assert found.share > 0.0
    assert "4 operators ran in a thread that the recording does not reach, first aten::matmul" in run.notes
