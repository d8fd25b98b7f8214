"""Follows the work of a step into other threads: threads that it starts, and tasks that it gives to a pool.

PyTorch's dispatch modes and its profiler belong to one thread. So the calls that start work in another thread are
wrapped while a pass runs. A task is numbered by the call that started it and not by the thread that happens to run it:
all passes see the same tasks. Results and exceptions of a task are its own, and no wrapper stays.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread
import multiprocessing.pool
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Key = tuple[int, ...]
"""The number of each call that led to a task, among those of the task that made the call; empty for the step itself.

For a thread that the step did not start, minus its identity.
"""
STEP: Key = ()

Leave = Callable[[], None]


def is_foreign(key: Key) -> bool:
    """Return whether a task is all that a thread does which the step did not start."""
    return len(key) == 1 and key[0] < 0


class Task:
    """Work of a step that one thread runs from its begin to its end. `origin` is what the pass noted at its start."""

    __slots__ = ("_tasks", "key", "origin", "started")

    def __init__(self, tasks: Tasks, key: Key, origin: Any = None) -> None:
        self._tasks = tasks
        self.key = key
        self.origin = origin
        self.started = 0
        """Number of tasks that it started."""

    def run(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> object:
        """Call a function as this task. Call paths of the task end here."""
        leave = self._tasks.enter(self)
        try:
            return function(*args, **kwargs)
        finally:
            leave()


class _Bound:
    """A function that runs as a task."""

    __slots__ = ("_function", "_task")

    def __init__(self, task: Task, function: Callable[..., object]) -> None:
        self._task = task
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        return self._task.run(self._function, *args, **kwargs)


class Tasks:
    """The tasks of one call of a step.

    `around` is called in the thread of a task when it begins, and returns what to call at its end. `note` is called
    where a task is started, with the task, the one that starts it and the frame of the call, and returns its origin.
    `refuse` says that work which this thread starts is part of something else.
    """

    def __init__(
        self,
        around: Callable[[Task], Leave],
        *,
        note: Callable[[Task, Task, FrameType], object] | None = None,
        refuse: Callable[[], bool] | None = None,
    ) -> None:
        self._around = around
        self._note = note
        self._refuse = refuse
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_open = False
        self._here: dict[int, Task] = {}
        self._foreign: dict[int, Task] = {}
        self._threads: dict[int, Task] = {}
        self._in_submit = threading.local()

    def here(self) -> Task:
        """Return the task that this thread runs; for a thread that runs none, its own."""
        me = threading.get_ident()
        found = self._here.get(me) or self._foreign.get(me)
        if found is None:
            found = self._foreign[me] = Task(self, (-me,))
        return found

    def is_known(self) -> bool:
        """Return whether this thread runs a task."""
        return threading.get_ident() in self._here

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the tasks that this thread starts within the context."""
        me = threading.get_ident()
        self._here[me] = Task(self, STEP)
        undo: list[Callable[[], None]] = []
        self._is_open = True
        try:
            for owner, name, wrap in (
                (threading.Thread, "start", self._wrap_start),
                (threading.Thread, "_bootstrap_inner", self._wrap_bootstrap),
                (concurrent.futures.ThreadPoolExecutor, "submit", self._wrap_submit),
                (multiprocessing.pool.ThreadPool, "apply_async", self._wrap_apply),
                (multiprocessing.pool.ThreadPool, "_guarded_task_generation", self._wrap_tasks),
            ):
                undo.append(_replace(owner, name, wrap))
            yield
        finally:
            self._is_open = False
            for each in reversed(undo):
                each()
            self._here.pop(me, None)

    def enter(self, task: Task) -> Leave:
        """Let this thread run a task until the returned function is called."""
        if not self._is_active():
            return _do_nothing
        me = threading.get_ident()
        before = self._here.get(me)
        self._here[me] = task
        leave = self._around(task)

        def restore() -> None:
            leave()
            if before is None:
                self._here.pop(me, None)
            else:
                self._here[me] = before

        return restore

    def _is_active(self) -> bool:
        """Return whether the pass still runs, and in this process: not in a fork of it."""
        return self._is_open and os.getpid() == self._process

    def _start(self, frame: FrameType) -> Task | None:
        """Return a task that this thread starts now; None for work that is not followed."""
        if not self._is_active() or getattr(self._in_submit, "on", False) or (self._refuse and self._refuse()):
            return None
        parent = self.here()
        with self._lock:
            number, parent.started = parent.started, parent.started + 1
        task = Task(self, (*parent.key, number))
        if self._note is not None:
            task.origin = self._note(task, parent, frame)
        return task

    def _wrap_start(self, start: Callable[..., object]) -> Callable[..., object]:
        def wrapped(thread: threading.Thread, *args: Any, **kwargs: Any) -> object:
            task = self._start(sys._getframe(1))  # noqa: SLF001
            if task is None:
                return start(thread, *args, **kwargs)
            self._threads[id(thread)] = task
            try:
                return start(thread, *args, **kwargs)
            except BaseException:
                self._threads.pop(id(thread), None)
                raise

        return wrapped

    def _wrap_bootstrap(self, bootstrap: Callable[..., object]) -> Callable[..., object]:
        def wrapped(thread: threading.Thread) -> object:
            task = self._threads.pop(id(thread), None)
            return bootstrap(thread) if task is None else task.run(bootstrap, thread)

        return wrapped

    def _wrap_submit(self, submit: Callable[..., object]) -> Callable[..., object]:
        def wrapped(pool: Any, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> object:
            if _runs_elsewhere(pool) or not callable(function):
                return submit(pool, function, *args, **kwargs)
            task = self._start(sys._getframe(1))  # noqa: SLF001
            if task is None:
                return submit(pool, function, *args, **kwargs)
            # How many threads a pool starts, and when, depends on the time that its tasks take: they are no tasks.
            self._in_submit.on = True
            try:
                return submit(pool, _Bound(task, function), *args, **kwargs)
            finally:
                self._in_submit.on = False

        return wrapped

    def _wrap_apply(self, apply: Callable[..., object]) -> Callable[..., object]:
        def wrapped(pool: Any, func: Callable[..., object], *args: Any, **kwargs: Any) -> object:
            task = self._start(sys._getframe(1))  # noqa: SLF001
            return apply(pool, func if task is None else _Bound(task, func), *args, **kwargs)

        return wrapped

    def _wrap_tasks(self, generate: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def wrapped(pool: Any, job: Any, func: Callable[..., object], iterable: Any) -> Iterator[Any]:
            task = self._start(sys._getframe(1))  # noqa: SLF001
            items = generate(pool, job, func, iterable)
            return items if task is None else self._number_items(task, func, items)

        return wrapped

    def _number_items(self, task: Task, function: Callable[..., object], items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            job, at, func, args, kwargs = item
            if func is not function:  # the error of an iterable, which the pool raises where its result is read
                yield item
                continue
            yield job, at, _Bound(Task(self, (*task.key, at), task.origin), func), args, kwargs


def _replace(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Replace a method of a class, and return how to put it back. One that others wrapped meanwhile stays."""
    original = getattr(owner, name)
    is_own = name in vars(owner)
    wrapped = wrap(original)
    for detail in ("__name__", "__qualname__", "__doc__"):
        setattr(wrapped, detail, getattr(original, detail, None))
    setattr(owner, name, wrapped)

    def undo() -> None:
        if vars(owner).get(name) is not wrapped:
            return
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return undo


def _runs_elsewhere(pool: object) -> bool:
    """Return whether a pool gives its tasks to other interpreters (Python 3.14), to which they are copied."""
    kind = getattr(concurrent.futures, "InterpreterPoolExecutor", None)
    return kind is not None and isinstance(pool, kind)


def _do_nothing() -> None:
    pass
