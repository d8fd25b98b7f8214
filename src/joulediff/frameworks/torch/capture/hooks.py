"""Hooks for what a dispatch mode cannot see: other threads, optimizer steps, autocast, the program's Triton kernels.

Each uses the framework's own hook or, if it has none, a wrapper around one method, which is always removed again.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from joulediff.frameworks.torch.capture.dispatch_mode import Sieve
from joulediff.frameworks.torch.capture.threads import Leave, Task, Tasks

RunTriton = Callable[[str, Callable[[], object], tuple[Any, ...], dict[str, Any]], object]


@contextmanager
def watch_optimizers(begin: Callable[[Any], None]) -> Iterator[None]:
    """Call a function when any optimizer's step begins."""
    from torch.optim import optimizer

    def before(each: Any, _args: Any, _kwargs: Any) -> None:
        begin(each)

    handle = optimizer.register_optimizer_step_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def watch_threads(
    sieve: Sieve,
    *,
    note: Callable[[Task, Task, FrameType], object] | None = None,
    begin: Callable[[Task], None] | None = None,
) -> Iterator[Tasks]:
    """Record the operators of the tasks that the step starts in other threads, and of modules that threads call.

    A thread from before the step that waits for work is reached only by the hooks of modules.
    """

    def around(task: Task) -> Leave:
        if begin is not None:
            begin(task)
        return sieve.activate()

    tasks = Tasks(around, note=note, refuse=sieve.is_inside)
    try:
        with tasks.attached(), _watch_modules(tasks, sieve):
            yield tasks
    finally:
        sieve.close()


@contextmanager
def _watch_modules(tasks: Tasks, sieve: Sieve) -> Iterator[None]:
    """Run modules that a thread without a task calls as its own task."""
    from torch.nn.modules import module as hooks

    entered: dict[int, tuple[object, Leave]] = {}

    def enter(module: object, _: Any) -> None:
        if not tasks.is_known() and not sieve.is_inside():
            entered[threading.get_ident()] = module, tasks.enter(tasks.here())

    def leave(module: object, *_: Any) -> None:
        me = threading.get_ident()
        if me in entered and entered[me][0] is module:
            entered.pop(me)[1]()
            if not entered and closed:
                after.remove()

    closed = False
    before = hooks.register_module_forward_pre_hook(enter)
    after = hooks.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        closed = True
        before.remove()
        if not entered:  # else a thread is still in a module
            after.remove()


@contextmanager
def watch_autocast(note: Callable[[str | None], None]) -> Iterator[None]:
    """Report the float type that autocast prefers, now and whenever it changes.

    Operators are dispatched below autocast, where it is not known any more.
    """
    import torch
    from torch.amp.autocast_mode import autocast

    enter, leave = autocast.__enter__, autocast.__exit__

    def entered(self: Any) -> Any:
        found = enter(self)
        note(autocast_now(torch))
        return found

    def left(self: Any, *details: Any) -> Any:
        found = leave(self, *details)
        note(autocast_now(torch))
        return found

    note(autocast_now(torch))
    autocast.__enter__, autocast.__exit__ = entered, left
    try:
        yield
    finally:
        autocast.__enter__, autocast.__exit__ = enter, leave


def autocast_now(torch: Any) -> str | None:
    """Return the float types that autocast prefers in this thread; None if it is off."""
    on = [kind for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)]
    return ", ".join(f"{kind} {str(torch.get_autocast_dtype(kind)).removeprefix('torch.')}" for kind in on) or None


@contextmanager
def watch_triton(run_kernel: RunTriton) -> Iterator[None]:
    """Pass every launch of a Triton kernel through `run_kernel`, if the program uses Triton at all."""
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        yield
        return
    from triton.runtime.jit import JITFunction

    original = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup"):
            return original(self, *args, **kwargs)
        shown = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        name = getattr(self, "__name__", "kernel")
        return run_kernel(name, lambda: original(self, *args, **kwargs), args, shown)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = original
