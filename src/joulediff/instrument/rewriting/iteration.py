"""Measure what a library does while a loop iterates one of its objects, such as a data loader.

A loop gets a stand-in that only the interpreter sees. The object's own `__iter__` and `__next__` are called by the
interpreter as in the plain program, without a Python frame of ours between.
"""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass
from typing import Any

from joulediff.instrument.rewriting.calls import Api, Call, Gate, SourceSite

# As `list` takes it for an iterable that gives no hint.
_DEFAULT_LENGTH_HINT = 8


@dataclass(frozen=True, slots=True)
class IterationApis:
    """The names of both calls, and the method of the class that makes the iterator."""

    begin: Api
    step: Api


class WatchedIterable:
    """Stands in for an iterable until the interpreter has asked it for an iterator."""

    __slots__ = ("_apis", "_gate", "_is_kept", "_iterable", "_place")

    def __init__(
        self, iterable: Any, place: SourceSite, apis: IterationApis, gate: Gate, *, is_kept: bool = False
    ) -> None:
        """Stand in for `iterable`. With `is_kept`, the program gets the iterator itself, as from `iter`."""
        self._iterable = iterable
        self._place = place
        self._apis = apis
        self._gate = gate
        self._is_kept = is_kept

    @property
    def __iter__(self) -> Any:
        make = special_method(self._iterable, "__iter__")
        if not self._is_kept:
            # `next` of this calls `make`, and then `_wrap` with its result, from C.
            make = map(self._wrap, itertools.starmap(make, ((),))).__next__
        return Call(make, self._place, self._apis.begin, self._gate)

    @property
    def __length_hint__(self) -> Any:
        """Ask the iterable itself: `list` does, before it iterates."""
        return functools.partial(operator.length_hint, self._iterable, _DEFAULT_LENGTH_HINT)

    def _wrap(self, iterator: Any) -> Any:
        if not hasattr(type(iterator), "__next__"):
            return iterator
        return WatchedIterator(iterator, self._place, self._apis, self._gate)


class WatchedIterator:
    """Stands in for the iterator of a loop."""

    __slots__ = ("_apis", "_gate", "_iterator", "_place")

    def __init__(self, iterator: Any, place: SourceSite, apis: IterationApis, gate: Gate) -> None:
        self._iterator = iterator
        self._place = place
        self._apis = apis
        self._gate = gate

    def __iter__(self) -> WatchedIterator:
        return self

    @property
    def __next__(self) -> Any:
        # A class may lose the method, or get another one, while it is iterated.
        return Call(special_method(self._iterator, "__next__"), self._place, self._apis.step, self._gate)

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        """Pickle as the iterator itself: `zip` and `enumerate` pickle what they iterate."""
        return _itself, (self._iterator,)


def _itself(iterator: Any) -> Any:
    return iterator


def special_method(thing: Any, name: str) -> Any:
    """Return a method as the interpreter finds it for a slot: from the class, not from the object."""
    kind = type(thing)
    for each in type.__dict__["__mro__"].__get__(kind):
        names = type.__dict__["__dict__"].__get__(each)
        if name in names:
            found = names[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, thing, kind)
    raise TypeError(f"{kind.__name__!r} object is not iterable")
