"""Eigenvectors that nobody asked for: under a dispatch mode PyTorch computes them wherever values are asked for.

`eigvals`, `eigvalsh` and `svdvals` cannot tell a watched tensor from one that needs a gradient, and so prepare for a
backward pass. What is watched must be what runs otherwise: then they ask for values alone.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

# What each operator computes values with, and the place of its parameter for vectors.
_WITH_VECTORS = {"aten::linalg_eig": None, "aten::_linalg_eigh": 2, "aten::_linalg_svd": 2}
_FOR_VALUES = ("eigvalsh", "eigvals", "svdvals", "matrix_rank", "cond", "matrix_norm", "norm")
_NOTHING = object()

Call = tuple[Any, tuple[Any, ...], Callable[[Any], Any]]


def as_asked(func: Any, args: tuple[Any, ...]) -> Call | None:
    """Return the call that runs where nothing watches, and how to give its result the form of this one; mostly None."""
    name = func._schema.name  # noqa: SLF001
    if name not in _WITH_VECTORS or _needs_gradient(args) or not _asks_for_values():
        return None
    at = _WITH_VECTORS[name]
    if at is not None:
        return func, (*_filled(func, args, at), False, *args[at + 1 :]), lambda found: found
    import torch

    alone = getattr(torch.ops.aten, "_linalg_eigvals", None)
    return None if alone is None else (alone.default, args, lambda found: (found, found.new_empty(0)))


def _filled(func: Any, args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return the first arguments of a call, with defaults where it gives fewer."""
    given = args[:count]
    return (*given, *(each.default_value for each in func._schema.arguments[len(given) : count]))  # noqa: SLF001


def _needs_gradient(args: tuple[Any, ...]) -> bool:
    import torch

    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def _asks_for_values() -> bool:
    """Return whether the call that is running is one of PyTorch's functions for values.

    A name is not enough: it may stand for another function, or for one that is called beside. So the running call is
    read from the source, and the function that it names is looked up where it runs.
    """
    import torch

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("joulediff.recorders.", "torch.utils.")
    ):
        frame = frame.f_back
    called = None if frame is None else _find_called(frame)
    return any(called is getattr(torch.linalg, name, _NOTHING) for name in _FOR_VALUES)


def _find_called(frame: FrameType) -> object:
    """Return the function that a frame is calling; None where its source does not tell."""
    text = _running_text(frame)
    try:
        found = ast.parse(text.strip(), mode="eval").body if text else None
    except (SyntaxError, ValueError):
        return None
    return _look_up(found.func, frame) if isinstance(found, ast.Call) else None


def _running_text(frame: FrameType) -> str | None:
    """Return the expression that a frame is at; None before Python 3.11, which does not know."""
    positions = getattr(frame.f_code, "co_positions", None)
    found = None if positions is None else next(islice(positions(), frame.f_lasti // 2, None), None)
    if found is None or None in found:
        return None
    first, last, begin, end = found
    file = frame.f_code.co_filename
    lines = [linecache.getline(file, number).encode() for number in range(first, last + 1)]  # columns are bytes
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode(errors="replace")


def _look_up(name: ast.expr, frame: FrameType) -> object:
    """Return what a name stands for in a frame. Attributes are read of modules alone: others may run code."""
    if isinstance(name, ast.Name):
        scopes = (frame.f_locals, frame.f_globals)
        return next((scope[name.id] for scope in scopes if name.id in scope), None)
    owner = _look_up(name.value, frame) if isinstance(name, ast.Attribute) else None
    return (
        getattr(owner, name.attr, None) if isinstance(owner, ModuleType) and isinstance(name, ast.Attribute) else None
    )
