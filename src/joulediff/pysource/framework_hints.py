"""The facts about frameworks that reading a program's source needs. The frameworks themselves provide them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _describe_nothing(_value: Any) -> str | None:
    return None


def _is_never(_name: str, _function: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class FrameworkHints:
    """Facts about the frameworks that a program uses."""

    packages: tuple[str, ...] = ()
    """Packages of frameworks, whose files are a library's also outside of site-packages."""
    generated: tuple[tuple[str, str], ...] = ()
    """Begins of the names that generated code has in place of a file, and the package that generates it."""
    describe_value: Callable[[Any], str | None] = _describe_nothing
    """Returns a value of a framework as text, without running the program's code; None for any other value.

    The text of a tensor begins with `tensor(`.
    """
    is_predicate: Callable[[str, Any], bool] = _is_never
    """Returns whether a function, called by this name without arguments, only reads a flag of a framework."""


NO_HINTS = FrameworkHints()
