"""The interface between the rewritten source, which notices calls, and what measures them.

A rewritten call `f(a)` runs as `site(f)(a)`. If `f` belongs to a library that is watched, `site(f)` is a `Call`: the
interpreter reads its `__call__` after the arguments were evaluated, which notes the begin and gives it `f` itself, and
frees the `Call` when `f` has returned or raised, which notes the end. No Python frame stands between the program and
`f`, so tracebacks, `super()`, `locals()` and `sys._getframe` in `f` are those of the plain program.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Is told of each watched call, in the thread of the call. Must not raise, and must be quick.

    It must not keep a call: the call ends when it is freed. A signal handler of the program, or the limit of recursion,
    may raise in `begin`, and `end` is called all the same.
    """

    def begin(self, call: Call) -> None:
        """Note that the callee is called next: its arguments are evaluated."""

    def end(self, call: Call) -> None:
        """Note that the callee has returned or raised. Called once for each `begin`, innermost call first."""


class Gate:
    """The listener of all calls of a watcher. After `close` no call is noted any more, and no end of an open one."""

    __slots__ = ("at_close", "is_closed", "listener", "preparing")

    def __init__(self, listener: Listener) -> None:
        self.listener: Listener = listener
        self.is_closed = False
        self.at_close: list[Callable[[], None]] = []
        self.preparing: dict[tuple[int, int], int | None] = {}
        """The bytes passed so far to each watched call whose arguments are being evaluated, by site and frame."""

    def close(self) -> None:
        self.listener = Silent()
        self.is_closed = True
        while self.at_close:
            self.at_close.pop()()


class Silent:
    """A listener that notes nothing."""

    def begin(self, call: Call) -> None:
        pass

    def end(self, call: Call) -> None:
        pass


class Call:
    """One call of a watched callee, from the evaluation of the callee until it has returned or raised.

    It lives on the interpreter's stack alone. Error messages of the interpreter read its names.
    """

    __slots__ = ("__weakref__", "api", "callee", "gate", "has_begun", "input_bytes", "key", "mark", "site")

    def __init__(
        self,
        callee: Any,
        site: SourceSite,
        api: Api,
        gate: Gate,
        input_bytes: int | None = None,
        key: tuple[int, int] | None = None,
    ) -> None:
        self.callee = callee
        self.site = site
        self.api = api
        self.gate = gate
        self.input_bytes = input_bytes
        """The bytes of the arrays that are passed, with those of a method's object, known at the begin."""
        self.key = key
        """Where `gate.preparing` counts the bytes; None if no argument of the call can be an array."""
        self.has_begun = False
        self.mark: Any = None
        """The listener's own note; None until the call begins."""

    @property
    def __call__(self) -> Any:
        """Note the begin, and return the callee for the interpreter to call."""
        if self.key is not None:
            self.input_bytes = self.gate.preparing.pop(self.key, None)
        self.has_begun = True
        # At the limit of recursion the callee is called without notice, so that it raises and not the listener.
        try:  # noqa: SIM105 - `suppress` would be one more call
            self.gate.listener.begin(self)
        except RecursionError:
            pass
        return self.callee

    def __del__(self) -> None:
        """Note the end. Arguments that raised leave a call that has not begun."""
        if self.has_begun:
            self.gate.listener.end(self)
        elif self.key is not None:
            self.gate.preparing.pop(self.key, None)

    @property
    def __module__(self) -> Any:  # type: ignore[override]
        return self.callee.__module__

    def __getattr__(self, name: str) -> Any:
        # A class cannot have a property of this name.
        if name == "__qualname__":
            return self.callee.__qualname__
        raise AttributeError(name)

    def __str__(self) -> str:
        return str(self.callee)

    def __repr__(self) -> str:
        return repr(self.callee)
