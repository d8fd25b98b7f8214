"""The objects that rewritten code calls in place of a callee, around an argument, and around what a loop iterates.

They are constants of the code objects, so no namespace of the program has a name of ours. After `Watcher.stop` all of
them return what they are given, unchanged.
"""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joulediff.instrument.array_bytes import count_bytes
from joulediff.instrument.callee import Callees
from joulediff.instrument.calls import Api, Call, Gate, Listener, SourceSite


class Watcher:
    """Tells a listener of the calls of libraries that rewritten code makes."""

    def __init__(
        self, libraries: Sequence[str] | Mapping[str, Sequence[str]], listener: Listener, *, every: bool = False
    ) -> None:
        """Watch libraries by the names of their packages. With `every`, watch every callable: for tests."""
        packages = libraries if isinstance(libraries, Mapping) else {name: (name,) for name in libraries}
        self.callees = Callees(packages, every=every)
        self.gate = Gate(listener)
        self.warnings: list[str] = []
        _stop_in_children(self)

    def stop(self) -> None:
        """Notice no call any more, and not the end of one that has begun."""
        self.gate.close()
        self.callees.stop()

    def site(self, place: SourceSite, *, counts_bytes: bool) -> Site:
        """Return what stands in rewritten code for one call expression."""
        return Site(place, self.callees.api_of, self.gate, counts_bytes=counts_bytes)


class Site:
    """One call expression or loop of rewritten code."""

    __slots__ = ("_api_of", "_counts_bytes", "_gate", "place")

    def __init__(
        self, place: SourceSite, api_of: Callable[[Any], Api | None], gate: Gate, *, counts_bytes: bool
    ) -> None:
        self.place = place
        self._api_of = api_of
        self._gate = gate
        self._counts_bytes = counts_bytes

    def callee(self, callee: Any) -> Any:
        """Return the callee, or the `Call` of it if it is watched."""
        api = self._api_of(callee)
        if api is None:
            return callee
        if not self._counts_bytes:
            return Call(callee, self.place, api, self._gate)
        key = (id(self), id(sys._getframe(1)))
        self._gate.preparing[key] = None
        return Call(callee, self.place, api, self._gate, key)

    def argument(self, value: Any) -> Any:
        """Return an argument; its bytes are added to the watched call that is being prepared."""
        preparing = self._gate.preparing
        if preparing:
            key = (id(self), id(sys._getframe(1)))
            if key in preparing:
                size_bytes = count_bytes(value)
                if size_bytes is not None:
                    preparing[key] = (preparing[key] or 0) + size_bytes
        return value

    def __reduce__(self) -> tuple[Callable[[], Site], tuple[()]]:
        """Pickle as a site that watches nothing: code that moves to another process is not measured there."""
        return unwatched_site, ()


def unwatched_site() -> Site:
    """Return a site that returns all that it is given unchanged."""
    return _UNWATCHED


def _watch_none(_callee: Any) -> None:
    return None


class _NoListener:
    def begin(self, call: Call) -> None:
        pass

    def end(self, call: Call) -> None:
        pass


_UNWATCHED = Site(SourceSite("", 0, 0, "", ""), _watch_none, Gate(_NoListener()), counts_bytes=False)


def _stop_in_children(watcher: Watcher) -> None:
    """Let a process that the program forks not be measured: its clock and its listener are the parent's."""
    if hasattr(os, "register_at_fork"):
        reference = weakref.ref(watcher)

        def stop() -> None:
            alive = reference()
            if alive is not None:
                alive.stop()

        os.register_at_fork(after_in_child=stop)
