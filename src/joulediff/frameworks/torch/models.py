"""Finds the models and tensors that a step refers to, with the names its author gave them.

A step is a closure, a bound method or a callable object: everything it refers to without a call is searched.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from joulediff.frameworks.references import parts_of
from joulediff.pysource.call_path import Base

if TYPE_CHECKING:
    import torch

# Deep enough for a pipeline of models in an attribute of an object in a closure.
MAX_DEPTH = 4
MAX_THINGS = 5000

# torch.compile wraps a module; the names below it are the program's own.
COMPILED_PREFIX = "_orig_mod."


@dataclass(slots=True)
class Holdings:
    """The outermost models that a step refers to, and its tensors outside of models, by name."""

    models: dict[str, torch.nn.Module] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


def find_holdings(step: object) -> Holdings:
    """Return the models and tensors that `step` refers to."""
    import torch

    found = Holdings()
    seen: set[int] = set()
    queue: list[tuple[str, object, int]] = [("", step, 0)]
    while queue:
        name, thing, depth = queue.pop(0)
        if id(thing) in seen or depth > MAX_DEPTH or len(seen) > MAX_THINGS:
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.nn.Module):
            found.models[name or "model"] = thing
        elif isinstance(thing, torch.optim.Optimizer):
            continue  # its state is named after the parameters, when it steps
        elif isinstance(thing, torch.Tensor):
            found.tensors[name or "tensor"] = thing
        else:
            queue += [(join_names(name, label), each, depth + 1) for label, each in parts_of(thing)]
    _keep_outermost(found.models)
    return found


def clean_name(path: str) -> str:
    """Return the path that a module or parameter has without `torch.compile`."""
    return f"{path}.".replace(COMPILED_PREFIX, "").removesuffix(".")


def join_names(name: str, label: str) -> str:
    """Return a path of two names, either of which may be empty."""
    return f"{name}.{label}" if name and label else name or label


def _keep_outermost(models: dict[str, torch.nn.Module]) -> None:
    inner = {id(m) for model in models.values() for m in model.modules() if m is not model}
    for name in [name for name, model in models.items() if id(model) in inner]:
        del models[name]


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
        """Remove the hooks."""
        self._stacks.clear()
        while self._handles:
            self._handles.pop().remove()

    def here(self, thread: int) -> Place:
        """Return the module that a thread is in."""
        stack = self._stacks.get(thread)
        return stack[-1].place if stack else _NOWHERE

    def place_of(self, module: torch.nn.Module) -> Place:
        """Return the place of a module; nowhere for one that is not known by name."""
        return self._find(module) or _NOWHERE

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
            # A model that the step does not refer to itself: named after the calling module, and its class.
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
    """Return the class of a module in the source; a scripted module stores it."""
    import torch

    return str(module.original_name if isinstance(module, torch.jit.ScriptModule) else type(module).__name__)
