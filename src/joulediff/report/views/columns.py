"""The one description of a table: its columns of text, and the columns that a narrow terminal may leave out or cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Cut = Literal["end", "begin", "line"]
Emphasis = Literal["", "total", "minor", "warning"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column, head and cells as text."""

    head: str
    cells: Sequence[str]
    is_right: bool = False
    spare: int | None = None
    """The order in which a narrow terminal leaves columns out, 0 first, those of one number together; None stays."""
    cut: Cut | None = None
    """The part of a long text that is cut off to fit; `line` keeps `file.py:12` at the end. None is never cut."""
    wraps: bool = False
    """Whether a long text continues on the next line instead."""
    short_head: str | None = None
    """A head for a narrow terminal."""
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns of equal length, and how each row stands out."""

    columns: tuple[Column, ...]
    emphasis: tuple[Emphasis, ...] = ()
