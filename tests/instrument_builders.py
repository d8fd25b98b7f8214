"""Programs that run plain and rewritten, and what can be observed of each."""

from __future__ import annotations

import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from joulediff.instrument.rewriting.calls import Call
from joulediff.instrument.rewriting.rewrite import compile_rewritten
from joulediff.instrument.rewriting.sites import Watcher

MODES = ("plain", "unwatched", "every")
FILE = "program.py"
# Functions of joulediff from which the compiler reports an error of the program.
_COMPILING = ("compile_rewritten", "compile", "_try_compile")


@dataclass(frozen=True)
class Noticed:
    """One call that a listener was told of."""

    api: str
    library: str
    text: str
    line: int
    function: str
    depth: int
    input_bytes: int | None


@dataclass
class Recorder:
    """A listener that notes each call, and that calls end in order. It keeps no call: its end would never come."""

    calls: list[Noticed] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    in_order: bool = True

    def begin(self, call: Call) -> None:
        site = call.site
        self.calls.append(
            Noticed(
                call.api.name, call.api.library, site.text, site.line, site.function, len(self.open), call.input_bytes
            )
        )
        mark = len(self.calls)
        self.open.append(mark)
        call.mark = mark

    def end(self, call: Call) -> None:
        if call.mark is None:
            return  # the limit of recursion, in `begin`
        if call.mark not in self.open:
            self.in_order = False
            return
        # Calls inside of it that did not end could not, at the limit of recursion.
        del self.open[self.open.index(call.mark) :]

    @property
    def names(self) -> list[str]:
        """Return the names of the APIs in the order of their calls."""
        return [each.api for each in self.calls]


@dataclass(frozen=True)
class Observed:
    """What a program did, as far as it can tell itself."""

    values: list[Any]
    error: tuple[str, str] | None
    frames: list[tuple[Any, ...]]
    warnings: list[str]


@contextmanager
def watching(libraries: Sequence[str] = (), *, every: bool = False) -> Iterator[tuple[Watcher, Recorder]]:
    """Yield a watcher that is stopped afterwards, and its listener."""
    recorder = Recorder()
    watcher = Watcher(libraries, recorder, every=every)
    try:
        yield watcher, recorder
    finally:
        watcher.stop()


def run_rewritten(
    source: str, libraries: Sequence[str] = (), *, every: bool = False, names: dict[str, Any] | None = None
) -> tuple[dict[str, Any], Recorder]:
    """Run a program rewritten; return its names and the calls that were noticed."""
    namespace = {"__name__": "__main__", **(names or {})}
    with watching(libraries, every=every) as (watcher, recorder):
        exec(compile_rewritten(source, FILE, watcher), namespace)
    assert not recorder.open and recorder.in_order
    return namespace, recorder


def observe(source: str, mode: str, names: Callable[[list[Any]], dict[str, Any]] | None = None) -> Observed:
    """Run a program in a mode. It notes values with `t(value)`, which returns the value."""
    values: list[Any] = []

    def t(value: Any, *others: Any, **more: Any) -> Any:
        values.append(_without_addresses(repr((value, others, more))))
        return value

    namespace: dict[str, Any] = {"__name__": "program", "t": t, **(names(values) if names is not None else {})}
    error, frames = None, []
    import warnings

    with watching(every=mode == "every") as (watcher, recorder), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            if mode == "plain":
                code = compile(source, FILE, "exec", dont_inherit=True)
            else:
                code = compile_rewritten(source, FILE, watcher)
            exec(code, namespace)
        except BaseException as raised:  # noqa: BLE001 - compared
            error = type(raised).__name__, _without_addresses(str(raised))
            frames = _frames(raised)
        texts = [f"{each.category.__name__}: {each.message} {each.lineno}" for each in warned]
        assert not watcher.warnings
    assert not recorder.open and recorder.in_order
    assert mode == "every" or not recorder.calls
    return Observed(values, error, frames, texts)


def _frames(error: BaseException) -> list[tuple[Any, ...]]:
    """Return the place and the name of each frame, down from the program, with those of the causes."""
    found: list[tuple[Any, ...]] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        is_ours = code.co_filename == __file__ or code.co_name in _COMPILING
        if not is_ours:
            found.append((code.co_filename, code.co_name, trace.tb_lineno, _columns(code, trace)))
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        found.append((error.filename, error.lineno, error.offset, error.end_lineno, error.end_offset, error.text))
    for other in (error.__cause__, error.__context__):
        if other is not None:
            found.extend(_frames(other))
    return found


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _columns(code: types.CodeType, trace: types.TracebackType) -> Any:
    if sys.version_info < (3, 11):
        return None
    return list(code.co_positions())[trace.tb_lasti // 2]


def text_of(error: BaseException) -> str:
    """Return the traceback as Python prints it."""
    return "".join(traceback.format_exception(error))
