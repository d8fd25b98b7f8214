"""Tasks that a step gives to other threads: numbered by the calls that start them, with nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import pool as pools
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

from joulediff.frameworks.torch.capture.threads import Key, Leave, Task, Tasks

WRAPPED = (
    (threading.Thread, "start"),
    (threading.Thread, "_bootstrap_inner"),
    (ThreadPoolExecutor, "submit"),
    (ThreadPool, "apply_async"),
    (ThreadPool, "_guarded_task_generation"),
)


def methods() -> list[Any]:
    return [getattr(owner, name) for owner, name in WRAPPED]


class Seen:
    """The tasks of a step, with what each of them did."""

    def __init__(self) -> None:
        self.begun: list[Key] = []
        self.ended: list[Key] = []
        self.work: dict[Any, Key] = {}
        self.tasks = Tasks(self.begin)

    def begin(self, task: Task) -> Leave:
        self.begun.append(task.key)
        return lambda: self.ended.append(task.key)

    def do(self, what: Any) -> Any:
        self.work[what] = self.tasks.here().key
        return what

    def run(self, step: Callable[[], object]) -> dict[Any, Key]:
        with self.tasks.attached():
            step()
        assert sorted(self.begun) == sorted(self.ended)
        return self.work


def test_each_task_has_the_number_of_the_call_that_started_it() -> None:
    seen = Seen()

    def step() -> None:
        seen.do("before")
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(seen.do, "abc")) == ["a", "b", "c"]
            assert pool.submit(seen.do, "d").result() == "d"
        thread = threading.Thread(target=seen.do, args=("e",))
        thread.start()
        thread.join()

    expected = {"before": (), "a": (0,), "b": (1,), "c": (2,), "d": (3,), "e": (4,)}
    assert seen.run(step) == expected


def test_tasks_of_tasks_continue_their_numbers() -> None:
    seen = Seen()

    def outer(name: str) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(seen.do, [f"{name}{number}" for number in range(2)]))

    def step() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(outer, "ab"))

    assert seen.run(step) == {"a0": (0, 0), "a1": (0, 1), "b0": (1, 0), "b1": (1, 1)}


def test_a_pool_from_before_the_step_and_a_coroutine() -> None:
    seen, keys = Seen(), []

    async def wait() -> None:
        await asyncio.to_thread(seen.do, "coroutine")

    with ThreadPoolExecutor(1) as pool, ThreadPool(2) as other:
        pool.submit(int).result()
        seen.run(lambda: pool.submit(seen.do, "x").result())
        assert seen.work == {"x": (0,)}
        for _ in range(5):
            again = Seen()
            keys.append(again.run(lambda again=again: other.map(again.do, range(6), chunksize=2)))  # type: ignore[misc]
        expected = {0: (0, 0), 1: (0, 0), 2: (0, 1), 3: (0, 1), 4: (0, 2), 5: (0, 2)}
        assert keys == [expected] * 5, "a chunk is a task, whichever thread runs it"
        single = Seen()
        single.run(lambda: other.apply(single.do, ("y",)))
        assert single.work == {"y": (0,)}
    awaited = Seen()
    seen = awaited
    awaited.run(lambda: asyncio.run(wait()))
    assert awaited.work == {"coroutine": (0,)}


def test_an_exception_of_a_task_is_that_of_the_program() -> None:
    seen, error = Seen(), ValueError("no")

    def fail() -> None:
        raise error

    def fail_while_read() -> Any:
        yield 1
        raise error

    def step() -> None:
        with ThreadPoolExecutor(1) as pool, ThreadPool(1) as other:
            assert pool.submit(fail).exception() is error
            with pytest.raises(ValueError, match="no"):
                other.apply(fail)
            with pytest.raises(ValueError, match="no"):
                list(other.imap(seen.do, fail_while_read()))
            with pytest.raises(TypeError):
                pool.submit()  # type: ignore[call-arg]

    seen.run(step)
    assert 1 in seen.work


def test_no_wrapper_stays_also_after_an_exception() -> None:
    before = methods()
    with pytest.raises(ZeroDivisionError):
        Seen().run(lambda: 1 // 0)
    assert methods() == before
    assert "apply_async" not in vars(pools.ThreadPool), "the method of the base class, as before"


def test_a_wrapper_of_the_program_around_ours_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, original = Seen(), ThreadPoolExecutor.submit
    calls: list[object] = []

    def step() -> None:
        ours = ThreadPoolExecutor.submit

        def submit(pool: Any, function: Any, *args: Any) -> Any:
            calls.append(function)
            return ours(pool, function, *args)

        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)

    seen.run(step)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(int).result() == 0
    assert calls == [int]
    assert seen.begun == [], "the step is over"
    monkeypatch.setattr(ThreadPoolExecutor, "submit", original)


def test_a_thread_that_outlives_the_step_goes_on() -> None:
    seen, go_on, results = Seen(), threading.Event(), []

    def work() -> None:
        go_on.wait()
        with ThreadPoolExecutor(1) as pool:
            results.append(pool.submit(int).result())

    thread = threading.Thread(target=work)
    with seen.tasks.attached():
        thread.start()
    go_on.set()
    thread.join()
    assert results == [0]
    assert (seen.begun, seen.ended) == ([(0,)], [(0,)]), "its own task is after the step"


def test_a_thread_that_the_step_did_not_start_is_known_by_itself() -> None:
    seen, begin, keys = Seen(), threading.Event(), []
    thread = threading.Thread(target=lambda: (begin.wait(), keys.append(seen.tasks.here().key)))
    thread.start()
    with seen.tasks.attached():
        begin.set()
        thread.join()
    assert keys == [(-(thread.ident or 0),)]


def test_work_that_is_part_of_something_else_is_no_task() -> None:
    begun: list[Key] = []

    def begin(task: Task) -> Leave:
        begun.append(task.key)
        return lambda: None

    tasks = Tasks(begin, refuse=lambda: True)
    with tasks.attached(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(int).result() == 0
    assert begun == []
