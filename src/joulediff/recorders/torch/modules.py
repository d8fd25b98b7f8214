"""Which module is running, by its path in the model: `transformer.h.3.mlp.act`.

Hooks of the framework itself, on all modules at once, tell when one begins and ends. They come off with `close`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from joulediff.recorders.torch.models import clean_name

if TYPE_CHECKING:
    import torch

Place = tuple[str | None, str | None]
"""A module's path and its class."""

_NOWHERE: Place = (None, None)


class ModulePaths:
    """Follows the calls of modules in every thread. `models` are the outermost ones that are known by name."""

    def __init__(self, models: Mapping[str, torch.nn.Module], *, met: Callable[[str, torch.nn.Module], None]) -> None:
        from torch.nn.modules import module as hooks

        self._names: dict[int, str] = {}
        self._held: list[object] = []
        self._met = met
        self._stacks: dict[int, list[Place]] = {}
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
        while self._handles:
            self._handles.pop().remove()

    def here(self) -> Place:
        """Return the module that this thread is in."""
        stack = self._stacks.get(threading.get_ident())
        return stack[-1] if stack else _NOWHERE

    def _adopt(self, root: str, model: torch.nn.Module) -> None:
        self._held.append(model)  # ids stay its own
        for path, module in model.named_modules():
            name = clean_name(path)
            self._names.setdefault(id(module), ".".join(part for part in (root, name) if part))
        self._met(root, model)

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        stack = self._stacks.setdefault(threading.get_ident(), [])
        name = self._names.get(id(module))
        if name is None:
            # A model the step does not hold itself: named after the module it is called from, and its class.
            outer = stack[-1][0] if stack else None
            root = ".".join(part for part in (outer, type(module).__name__) if part)
            self._adopt(root, module)
            name = self._names[id(module)]
        if is_compiled(module) and not any(place[1] == _COMPILED for place in stack):
            self.compiled.append(name)
            stack.append((name, _COMPILED))
        else:
            stack.append((name, type(module).__name__))

    def _leave(self, *_: Any) -> None:
        stack = self._stacks.get(threading.get_ident())
        if stack:
            stack.pop()


_COMPILED = "OptimizedModule"


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether `torch.compile` or `Module.compile` was applied to a module."""
    compiled_call = getattr(module, "_compiled_call_impl", None)
    return type(module).__name__ == _COMPILED or compiled_call is not None
