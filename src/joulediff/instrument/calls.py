"""The interface between the rewritten source, which notices calls, and what measures them.

A rewritten call `f(a)` runs as `site(f)(a)`. If `f` belongs to a library that is watched, `site(f)` is a `Call`: the
interpreter reads its `__call__` after the arguments were evaluated, which notes the begin and gives it `f` itself, and
frees the `Call` when `f` has returned or raised, which notes the end. No Python frame stands between the program and
`f`, so tracebacks, `super()`, `locals()` and `sys._getframe` in `f` are those of the plain program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class SourceSite:
    """One call expression of the program. `text` is the source of its callee, `function` the function around it."""

    file: str
    line: int
    column: int
    text: str
    function: str


@dataclass(frozen=True, slots=True)
class Api:
    """A callable of a library, by its public name: `torch.nn.Linear`, library `torch`."""

    name: str
    library: str


class Listener(Protocol):
    """Is told of each watched call, in the thread of the call. Must not raise, and must be quick."""

    def begin(self, call: Call) -> None:
        """Note that the callee is called next: its arguments are evaluated."""

    def end(self, call: Call) -> None:
        """Note that the callee has returned or raised. Called once for each `begin`, innermost call first."""


class Call:
    """One call of a watched callee, from the evaluation of the callee until it has returned or raised."""

    __slots__ = ("__weakref__", "api", "callee", "input_bytes", "listener", "mark", "site")

    def __init__(self, callee: Any, site: SourceSite, api: Api, listener: Listener) -> None:
        self.callee = callee
        self.site = site
        self.api = api
        self.listener = listener
        self.input_bytes: int | None = None
        """The bytes of the arrays that are passed, known at the begin."""
        self.mark: Any = None
        """The listener's own note; None until the call begins."""
