"""Eigenvectors that nobody asked for: under a dispatch mode PyTorch computes them wherever values are asked for.

`eigvals`, `eigvalsh` and `svdvals` cannot tell a watched tensor from one that needs a gradient, and so prepare for a
backward pass. What is watched must be what runs otherwise: then they ask for values alone.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

# What each operator computes values with, and the place of its parameter for vectors.
_WITH_VECTORS = {"aten::linalg_eig": None, "aten::_linalg_eigh": 2, "aten::_linalg_svd": 2}
_ASK_FOR_VALUES = re.compile(r"\b(eigvalsh|eigvals|svdvals|matrix_rank|cond|matrix_norm|norm|pinv)\s*\(")
_ASK_FOR_VECTORS = re.compile(r"\b(eigh|eig|svd)\s*\(")

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
    """Return whether the line that is running asks for values, and for no vectors."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("joulediff.recorders.", "torch.utils.")
    ):
        frame = frame.f_back
    if frame is None:
        return False
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return bool(_ASK_FOR_VALUES.search(line)) and not _ASK_FOR_VECTORS.search(line)
