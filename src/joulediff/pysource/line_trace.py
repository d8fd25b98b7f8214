"""The record of one call of a function: its executed statements, the values each read, and the origins of the values.

A trace is data alone. Its steps refer to each other by index in `LineTrace.steps`, sources first, so that an origin
shared by many statements is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from joulediff.model.place import Place
from joulediff.model.run import Setting

OriginKind = Literal["argument", "assignment", "attribute", "config", "environment", "call", "global", "constant"]


@dataclass(frozen=True, slots=True)
class Target:
    """A function as call paths name it: `file` and `function` are those of a `Frame`."""

    file: str
    function: str
    line: int | None = None
    """The line in it that calls the next function of the path."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One value that was read, and the expression it came from."""

    kind: OriginKind
    name: str
    """As the code reads it: `self.config.use_cache`."""
    key: str
    """As a report names it: `config.use_cache`, `Attention.scale`, `OMP_NUM_THREADS`."""
    text: str
    """The expression that its value came from."""
    value: Setting
    exact: bool
    """Whether `value` is the value itself, not a description of it such as a class or a tensor's shape."""
    place: Place | None
    """Where it is set; for a configuration, or if its origin is unknown, where it is read."""
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One executed statement; of a compound statement its head alone."""

    line: int
    text: str
    """Its source as `ast.unparse` writes it, independent of layout."""
    branch: bool
    """Whether it decides which statement runs next."""
    atoms: tuple[int, ...] = ()
    """The steps of the values that it reads, called functions first; read before it ran."""
    callees: int = 0
    """How many of `atoms` are called functions."""
    binds: tuple[str, ...] = ()
    """The names it sets."""


@dataclass(frozen=True, slots=True)
class LineTrace:
    """One call of a function."""

    file: str
    function: str
    first: int
    """The line number of the function's first line."""
    source: tuple[str, ...]
    lines: tuple[TraceLine, ...]
    steps: tuple[TraceStep, ...]
    led: int | None = None
    """The index in `lines` of the statement on the target's line, if the target has one."""
    complete: bool = True
    """Whether every executed statement is recorded."""
