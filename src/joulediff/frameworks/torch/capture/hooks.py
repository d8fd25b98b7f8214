"""Hooks for events that a dispatch mode cannot see: optimizer steps, autocast, and the program's own Triton kernels.

Each uses the framework's own hook or, if it has none, a wrapper around one method, which is always removed again.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
def watch_autocast(note: Callable[[str | None], None]) -> Iterator[None]:
    """Report the float type that autocast prefers, now and whenever it changes.

    Operators are dispatched below autocast, where it is not known any more.
    """
    import torch
    from torch.amp.autocast_mode import autocast

    enter, leave = autocast.__enter__, autocast.__exit__

    def entered(self: Any) -> Any:
        found = enter(self)
        note(_autocast_now(torch))
        return found

    def left(self: Any, *details: Any) -> Any:
        found = leave(self, *details)
        note(_autocast_now(torch))
        return found

    note(_autocast_now(torch))
    autocast.__enter__, autocast.__exit__ = entered, left
    try:
        yield
    finally:
        autocast.__enter__, autocast.__exit__ = enter, leave


def _autocast_now(torch: Any) -> str | None:
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
