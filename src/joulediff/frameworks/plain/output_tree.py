"""Flattens what a step returns into columns of numbers and texts, so that two steps are compared by value.

Names do not depend on the container that a program chose: a list of numbers, an array and a column of a table with
equal numbers are equal. What cannot be read is a column too, with the reason: unknown is no agreement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import hashlib
import inspect
import logging
import pathlib
import random
import sys
import threading
import types
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from joulediff.frameworks.references import object_references
from joulediff.frameworks.settings import UNREADABLE
from joulediff.model.outputs import OUTPUT

# Longer sequences and mappings are data: their entries have one name.
MAX_NAMED = 16
MAX_DEPTH = 24
MAX_THINGS = 2_000_000
MAX_COLUMNS = 512
# A larger whole number is not exact as a double.
MAX_WHOLE = 2**53

_SEQUENCES = (list, tuple, deque)
_NUMBERS = (bool, int, float, complex, decimal.Decimal, fractions.Fraction, np.bool_, np.number)
_TEXTS = (
    *(str, bytes, bytearray, memoryview, enum.Enum, pathlib.PurePath, uuid.UUID, type, range, slice, type(None)),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, np.datetime64, np.timedelta64),
)
# Parts of an object that are no result, such as the generator that a model was fitted with.
_TOOLS = (random.Random, np.random.Generator, np.random.RandomState, logging.Logger, type(threading.Lock()))
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, np.ufunc)


@dataclass(slots=True)
class Column:
    """Values with one name: numbers in the order of the output, and a digest of its texts."""

    numbers: list[np.ndarray] = field(default_factory=list)
    shape: tuple[int, ...] | None = None
    """The shape of its only array; None for values from several places."""
    texts: Any = None
    """The digest of the texts so far; None without any."""
    unknown: str | None = None
    """Why a part of it cannot be compared."""

    def add_numbers(self, numbers: np.ndarray) -> None:
        """Add an array of numbers."""
        self.shape = None if self.numbers else numbers.shape
        self.numbers.append(numbers)

    def add_text(self, text: bytes) -> None:
        """Add a text; its length keeps two texts apart from one."""
        if self.texts is None:
            self.texts = hashlib.sha256()
        self.texts.update(f"{len(text)}:".encode() + text)


def flatten(output: object) -> dict[str, Column]:
    """Return the columns of an output by name; empty for a step that returns nothing."""
    if output is None:
        return {}
    walk = _Walk()
    walk.visit(output, OUTPUT, 0)
    return walk.columns


@dataclass(slots=True)
class _Walk:
    columns: dict[str, Column] = field(default_factory=dict)
    things: int = 0
    path: set[int] = field(default_factory=set)
    """The objects around the present one: an object inside of itself has no end."""

    def visit(self, thing: Any, name: str, depth: int) -> None:
        self.things += 1
        if self.things > MAX_THINGS or depth > MAX_DEPTH:
            self._refuse(name, "it has too many parts")
        elif isinstance(thing, _NUMBERS) and not isinstance(thing, enum.Enum | np.timedelta64):
            self._number(thing, name)
        elif isinstance(thing, _TEXTS):
            self._text(_text_of(thing), name)
        elif isinstance(thing, np.ndarray):
            self._array(thing, name, depth)
        elif id(thing) not in self.path:
            self.path.add(id(thing))
            try:
                self._parts(thing, name, depth + 1)
            finally:
                self.path.discard(id(thing))

    def _column(self, name: str) -> Column:
        if name not in self.columns and len(self.columns) >= MAX_COLUMNS:
            name = OUTPUT
            self.columns.setdefault(name, Column()).unknown = "it has too many different parts"
        return self.columns.setdefault(name, Column())

    def _refuse(self, name: str, why: str) -> None:
        column = self._column(name)
        column.unknown = column.unknown or why

    def _text(self, text: bytes, name: str) -> None:
        self._column(name).add_text(text)

    def _number(self, thing: Any, name: str) -> None:
        if isinstance(thing, int) and abs(thing) > MAX_WHOLE:
            self._text(str(thing).encode(), name)
            return
        is_complex = isinstance(thing, complex | np.complexfloating)
        self._column(name).add_numbers(np.asarray(complex(thing) if is_complex else float(thing)))

    def _array(self, array: np.ndarray, name: str, depth: int) -> None:
        kind = array.dtype.kind
        if isinstance(array, np.ma.MaskedArray):
            self.visit(np.ma.getmaskarray(array), f"{name}.mask", depth + 1)
            self.visit(np.asarray(array.filled(0)), name, depth + 1)
        elif kind in "biufc":
            self._column(name).add_numbers(np.asarray(array))
        elif array.dtype.names:
            for each in array.dtype.names:
                self.visit(array[each], f"{name}.{each}", depth + 1)
        elif kind in "mM":  # moments differ by less than a share of their distance from 1970
            self._text(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes(), name)
        elif kind in "OUST":
            self._items(array.ravel().tolist(), name, depth + 1)
        else:
            self._refuse(name, f"an array of {array.dtype} cannot be read")

    def _parts(self, thing: Any, name: str, depth: int) -> None:
        if isinstance(thing, Mapping):
            self._mapping(thing, name, depth)
        elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
            self._named(zip(thing._fields, thing, strict=False), name, depth)
        elif isinstance(thing, _SEQUENCES):
            self._sequence(thing, name, depth)
        elif isinstance(thing, set | frozenset):
            self._sequence(_in_order(thing), name, depth)
        elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            self._named(
                ((each.name, getattr(thing, each.name, None)) for each in dataclasses.fields(thing)), name, depth
            )
        elif (table := _table_parts(thing)) is not None:
            self._named(table, name, depth)
        elif (array := _to_array(thing)) is not None:
            self._array(array, name, depth)
        else:
            self._object(thing, name, depth)

    def _named(self, parts: Iterable[tuple[str, object]], name: str, depth: int) -> None:
        for label, part in parts:
            self.visit(part, f"{name}.{label}" if label else name, depth)

    def _mapping(self, thing: Mapping[Any, Any], name: str, depth: int) -> None:
        if len(thing) <= MAX_NAMED and all(isinstance(key, str) for key in thing):
            self._named(thing.items(), name, depth)
            if not thing:
                self._count(thing, name)
            return
        keys = _in_order(thing)
        self._items(keys, f"{name}.keys", depth)
        self._items([thing[key] for key in keys], f"{name}.*", depth)

    def _sequence(self, thing: Any, name: str, depth: int) -> None:
        array = _rectangle(thing)
        if array is not None:
            self._array(array, name, depth)
        elif len(thing) <= MAX_NAMED and not all(isinstance(each, (*_NUMBERS, *_TEXTS)) for each in thing):
            self._named(((str(at), each) for at, each in enumerate(thing)), name, depth)
        else:
            self._items(thing, name, depth)

    def _items(self, things: Any, name: str, depth: int) -> None:
        """Visit entries under one name; entries that are containers are one level below."""
        self._count(things, name)
        for each in things:
            is_leaf = isinstance(each, (*_NUMBERS, *_TEXTS))
            self.visit(each, name if is_leaf else f"{name}.*", depth)

    def _count(self, things: Any, name: str) -> None:
        self._text(f"{len(things)} parts".encode(), name)

    def _object(self, thing: Any, name: str, depth: int) -> None:
        if isinstance(thing, _TOOLS) or (isinstance(thing, _FUNCTIONS) and name != OUTPUT):
            self._text(f"{type(thing).__qualname__} {getattr(thing, '__qualname__', '')}".encode(), name)
            return
        parts = [] if _is_opaque(thing) else list(_attributes(thing))
        if not parts:
            self._refuse(name, f"it is a {type(thing).__module__}.{type(thing).__qualname__}")
            return
        self._named(sorted(parts), name, depth)


def _text_of(thing: Any) -> bytes:
    if isinstance(thing, str):
        return thing.encode("utf-8", "surrogatepass")
    if isinstance(thing, bytes | bytearray | memoryview):
        return bytes(thing)
    if isinstance(thing, type):
        return f"{thing.__module__}.{thing.__qualname__}".encode()
    if isinstance(thing, enum.Enum):
        return f"{type(thing).__qualname__}.{thing.name}".encode()
    return repr(thing).encode("utf-8", "surrogatepass")


def _in_order(things: Iterable[Any]) -> list[Any]:
    """Return the entries of a set, or the keys of a mapping, in an order that both programs have."""
    return sorted(things, key=lambda each: (type(each).__qualname__, each if isinstance(each, str) else repr(each)))


def _rectangle(thing: Any) -> np.ndarray | None:
    """Return lists of numbers, also nested ones of equal length, as an array; None for anything else."""
    first, depth = thing, 0
    while isinstance(first, list | tuple) and len(first) and depth < MAX_DEPTH:
        first, depth = first[0], depth + 1
    if depth == 0 or not isinstance(first, _NUMBERS) or isinstance(thing, deque):
        return None
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        array = np.asarray(thing)
        is_exact = array.dtype.kind in "bfc" or (array.dtype.kind in "iu" and _is_small(array))
        # With texts or None among the numbers, it is an array of other things.
        return array if is_exact and array.ndim == depth else None
    return None


def _is_small(array: np.ndarray) -> bool:
    return not array.size or max(abs(int(array.min())), abs(int(array.max()))) <= MAX_WHOLE


def _table_parts(thing: Any) -> list[tuple[str, object]] | None:
    """Return the columns and the index of a table of pandas, or the entries of a sparse matrix; None for others."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        if isinstance(thing, pandas.DataFrame):
            columns = [(str(label), _series_values(thing.iloc[:, at])) for at, label in enumerate(thing.columns)]
            return [*columns, *_index_parts(thing.index)]
        if isinstance(thing, pandas.Series):
            return [("", _series_values(thing)), *_index_parts(thing.index)]
        if isinstance(thing, pandas.Index):
            return [("", _series_values(thing))]
        if thing is pandas.NA:
            return [("", "NA")]
    if hasattr(thing, "tocoo") and hasattr(thing, "nnz"):
        entries = thing.tocoo()
        order = np.lexsort((entries.col, entries.row))
        return [(each, getattr(entries, each)[order]) for each in ("row", "col", "data")]
    return None


def _series_values(series: Any) -> object:
    """Return the values of a column; numbers with missing ones as doubles."""
    values = series.to_numpy()
    if values.dtype == object and getattr(series.dtype, "kind", "O") in "biuf":
        with contextlib.suppress(*UNREADABLE):
            return series.to_numpy(dtype=float, na_value=float("nan"))
    return values


def _index_parts(index: Any) -> Iterator[tuple[str, object]]:
    """Yield the index of a table, unless it only counts its rows."""
    values = np.asarray(_series_values(index))
    if values.dtype.kind not in "iu" or not np.array_equal(values, np.arange(len(values))):
        yield "index", values


def _to_array(thing: Any) -> np.ndarray | None:
    """Return an array of a library as one of NumPy; None for anything else."""
    if isinstance(thing, type) or not hasattr(thing, "__array__"):
        return None
    with contextlib.suppress(*UNREADABLE):
        return np.asarray(thing)
    return None


def _is_opaque(thing: Any) -> bool:
    """Return whether an object has work left to do, or its state outside of Python."""
    is_callable_only = isinstance(thing, (*_FUNCTIONS, types.ModuleType))
    return is_callable_only or inspect.isgenerator(thing) or inspect.isawaitable(thing) or hasattr(thing, "__next__")


def _attributes(thing: Any) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object of its own, and its slots; not those of a class written in C."""
    slots = {name for kind in type(thing).__mro__ for name in _slots_of(kind)}
    own = getattr(thing, "__dict__", {})
    yield from ((each.name, each.value) for each in object_references(thing) if each.name in own or each.name in slots)


def _slots_of(kind: type) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)
