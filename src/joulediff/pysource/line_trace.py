"""The way through one call of a function: the statements it ran, what each read, and where those values came from.

A walk is data alone. Its steps refer to each other by their place in `Walk.steps`, sources before what is made of
them, so that an origin shared by many statements is kept once.
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
    """The line in it that leads on."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that was read, and one step back to where its value came from."""

    kind: OriginKind
    name: str
    """As the code reads it: `self.config.use_cache`."""
    key: str
    """As a report names it: `config.use_cache`, `Attention.scale`, `OMP_NUM_THREADS`."""
    text: str
    """The expression that gave it its value."""
    value: Setting
    exact: bool
    """The value itself; otherwise a description of it, such as a class or a tensor's shape."""
    place: Place | None
    """Where it is set; for a configuration and for what cannot be followed, where it is read."""
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One executed statement; of a compound one its head alone."""

    line: int
    text: str
    """As Python itself would write it, so that layout and line numbers do not matter."""
    branch: bool
    """It decides which statement is next."""
    atoms: tuple[int, ...] = ()
    """The steps of what it reads, what it calls first; read before it ran."""
    callees: int = 0
    """How many of them are what it calls."""
    binds: tuple[str, ...] = ()
    """The names it sets."""


@dataclass(frozen=True, slots=True)
class LineTrace:
    """One call of a function."""

    file: str
    function: str
    first: int
    """The number of the function's first line."""
    source: tuple[str, ...]
    lines: tuple[TraceLine, ...]
    steps: tuple[TraceStep, ...]
    led: int | None = None
    """The place in `lines` of the statement that leads on, where one was asked for."""
    complete: bool = True
    """Every executed statement is there."""
