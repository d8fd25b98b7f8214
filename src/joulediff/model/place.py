"""A line of source code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code."""

    file: str
    line: int
    function: str
    text: str | None = None
    """The text of the line; None if it is not recorded."""
