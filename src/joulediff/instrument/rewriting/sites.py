"""The objects that rewritten code calls around a callee, an argument, and the expression that a loop iterates.

They are constants of the code objects, so no namespace of the program has a name of ours. After `Watcher.stop` all of
them return what they are given, unchanged.
"""

from __future__ import annotations

import builtins
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, MethodType
from typing import Any

from joulediff.frameworks.framework import frameworks
from joulediff.instrument.rewriting.array_bytes import count_bytes
from joulediff.instrument.rewriting.callee import Callees
from joulediff.instrument.rewriting.calls import Api, Call, Gate, Listener, Silent, SourceSite
from joulediff.instrument.rewriting.iteration import WatchedIterable, WatchedIterator
from joulediff.instrument.rewriting.libraries import packages_of
from joulediff.instrument.rewriting.plain_code import PlainSource, plain_code
from joulediff.instrument.rewriting.signals import pass_signals_on

BUILTIN_ITERATORS: Mapping[str, int] = {"enumerate": 1, "iter": 1, "list": 1, "next": 1, "tuple": 1, "zip": sys.maxsize}
"""Functions that iterate their first arguments in C, and how many of them: a program never sees what they iterate."""
_ORIGINAL = {name: getattr(builtins, name) for name in BUILTIN_ITERATORS}
_frame_of_caller = sys._getframe  # noqa: SLF001


class Watcher:
    """Tells a listener of the calls of libraries that rewritten code makes."""

    def __init__(self, libraries: Sequence[str], listener: Listener, *, every: bool = False) -> None:
        """Watch libraries by the names that programs import. With `every`, watch all callables: for tests."""
        self.callees = Callees(packages_of(libraries), every=every)
        self.gate = Gate(listener)
        self.warnings: list[str] = []
        """What was left out, in sentences."""
        _stop_in_children(self)
        pass_signals_on(self.gate)
        for framework in frameworks():
            if framework.read_plain_code is not None:
                self.gate.at_close.append(framework.read_plain_code(plain_code))

    def stop(self) -> None:
        """Notice no call any more, and not the end of one that has begun."""
        self.gate.close()
        self.callees.stop()

    def site(self, place: SourceSite, plain: PlainSource | None) -> Site:
        """Return the site of one expression in the source."""
        return Site(place, self.callees, self.gate, plain)


class Site:
    """One call expression or loop of rewritten code. Its methods stand in the code."""

    __slots__ = ("_api_of", "_callees", "_gate", "counts_bytes", "place", "plain")

    def __init__(self, place: SourceSite, callees: Callees, gate: Gate, plain: PlainSource | None = None) -> None:
        self.place = place
        self.plain = plain
        self.counts_bytes = False
        """Whether `argument` stands around an argument of the call."""
        self._callees = callees
        self._api_of = callees.api_of
        self._gate = gate

    # At the limit of recursion these return what they were given, so that the program raises at its own line.

    def callee(self, callee: Any) -> Any:
        """Return the callee, or the `Call` of it if it is watched."""
        try:
            api = self._api_of(callee)
            return callee if api is None else self._watch(callee, api, id(_frame_of_caller(1)))
        except RecursionError:
            return callee

    def _watch(self, callee: Any, api: Api, frame: int) -> Call:
        kind = type(callee)
        size_bytes = count_bytes(callee.__self__) if kind is MethodType or kind is BuiltinFunctionType else None
        if not self.counts_bytes:
            return Call(callee, self.place, api, self._gate, size_bytes)
        key = (id(self), frame)
        call = Call(callee, self.place, api, self._gate, size_bytes, key)
        self._gate.preparing[key] = size_bytes
        return call

    def argument(self, value: Any) -> Any:
        """Return an argument; its bytes are added to the watched call that is being prepared."""
        preparing = self._gate.preparing
        if preparing:
            key = (id(self), id(_frame_of_caller(1)))
            if key in preparing:
                try:
                    size_bytes = count_bytes(value)
                except RecursionError:
                    return value
                if size_bytes is not None:
                    preparing[key] = (preparing[key] or 0) + size_bytes
        return value

    def unchanged(self, value: Any) -> Any:
        """Return the value: the call of this has the place in the source that a part of the code needs."""
        return value

    def iterate(self, iterable: Any) -> Any:
        """Return what a loop iterates, or a stand-in if a watched library works while it is iterated."""
        try:
            apis = self._callees.iteration_of(iterable)
            if apis is None:
                return iterable
            return WatchedIterable(iterable, self.place, apis, self._gate)
        except RecursionError:
            return iterable

    def builtin_argument(self, value: Any) -> Any:
        """Return the argument of a builtin function that iterates it, or a stand-in as for a loop."""
        try:
            apis = self._callees.iteration_of(value)
            if apis is None:
                return value
            name = self.place.text
            frame = _frame_of_caller(1)
            if name in frame.f_globals or frame.f_builtins.get(name) is not _ORIGINAL[name]:
                return value
            if name == "next":
                if not hasattr(type(value), "__next__"):
                    return value
                return WatchedIterator(value, self.place, apis, self._gate)
            return WatchedIterable(value, self.place, apis, self._gate, is_kept=name == "iter")
        except RecursionError:
            return value

    def __reduce__(self) -> tuple[Callable[[], Site], tuple[()]]:
        """Pickle as a site that watches nothing: code that moves to another process is not measured there."""
        return unwatched_site, ()


def unwatched_site() -> Site:
    """Return a site that returns all that it is given unchanged."""
    return _UNWATCHED


_UNWATCHED = Site(SourceSite("", 0, 0, "", ""), Callees({}), Gate(Silent()))


def _stop_in_children(watcher: Watcher) -> None:
    """Let a process that the program forks not be measured: its listener and its clock are the parent's."""
    if hasattr(os, "register_at_fork"):
        reference = weakref.ref(watcher)

        def stop() -> None:
            alive = reference()
            if alive is not None:
                alive.stop()

        os.register_at_fork(after_in_child=stop)
