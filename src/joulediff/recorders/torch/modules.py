"""Which module is running, by its path in the model: `transformer.h.3.mlp.act`.

Hooks of the framework itself, on all modules at once, tell when one begins and ends. They come off with `close`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from joulediff.recorders.callpath import Base
from joulediff.recorders.torch.models import clean_name, join_names

if TYPE_CHECKING:
    import torch

Place = tuple[str | None, str | None]
"""A module's path and its class."""

_NOWHERE: Place = (None, None)
_WRAPPER = "OptimizedModule"


class _Entered(NamedTuple):
    module: torch.nn.Module
    place: Place
    is_compiled: bool
    base: Base


class ModulePaths:
    """Follows the calls of modules in every thread. `models` are the outermost ones that are known by name."""

    def __init__(self, models: Mapping[str, torch.nn.Module], *, met: Callable[[str, torch.nn.Module], None]) -> None:
        from torch.nn.modules import module as hooks

        self._places: dict[int, tuple[weakref.ref[torch.nn.Module], Place]] = {}
        self._met = met
        self._stacks: dict[int, list[_Entered]] = {}
        self.compiled: list[str] = []
        """The paths of compiled modules, in the order they were entered."""
        for name, model in models.items():
            self._adopt(name if len(models) > 1 else "", model)
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    def close(self) -> None:
        """Take the hooks off."""
        self._stacks.clear()
        while self._handles:
            self._handles.pop().remove()

    def here(self, thread: int) -> Place:
        """Return the module that a thread is in."""
        stack = self._stacks.get(thread)
        return stack[-1].place if stack else _NOWHERE

    def base(self, thread: int) -> Base | None:
        """Return the frame that called the module a thread is in."""
        stack = self._stacks.get(thread)
        return stack[-1].base if stack else None

    def _adopt(self, root: str, model: torch.nn.Module) -> None:
        for path, module in model.named_modules():
            if self._find(module) is None:
                name = join_names(root, clean_name(path))
                self._places[id(module)] = (weakref.ref(module), (name, _class_of(module)))
        self._met(root, model)

    def _find(self, module: torch.nn.Module) -> Place | None:
        reference, place = self._places.get(id(module), (None, _NOWHERE))
        return place if reference is not None and reference() is module else None

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        stack = self._stacks.setdefault(threading.get_ident(), [])
        place = self._find(module)
        if place is None:
            # A model the step does not hold itself: named after the module it is called from, and its class.
            outer = stack[-1].place[0] if stack else None
            self._adopt(join_names(outer or "", _class_of(module)), module)
            place = self._find(module) or _NOWHERE
        compiled = is_compiled(module)
        if compiled and not any(entered.is_compiled for entered in stack):
            self.compiled.append(place[0] or "")
        base = Base(sys._getframe(1), stack[-1].base if stack else None)  # noqa: SLF001
        stack.append(_Entered(module, place, compiled, base))

    def _leave(self, module: torch.nn.Module, *_: Any) -> None:
        stack = self._stacks.get(threading.get_ident(), [])
        # Those above it were left by something else than an Exception; it is not there itself where a hook before
        # ours failed.
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth].module is module:
                del stack[depth:]
                return


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether `torch.compile` or `Module.compile` was applied to a module."""
    return type(module).__name__ == _WRAPPER or module.__dict__.get("_compiled_call_impl") is not None


def _class_of(module: torch.nn.Module) -> str:
    """Return the class of a module as it is written; a scripted one remembers it."""
    import torch

    return str(module.original_name if isinstance(module, torch.jit.ScriptModule) else type(module).__name__)
