"""The size of the arrays that a value holds, without a copy and without running code of the program.

Frameworks say how large their own arrays and data sets are. Lists, tuples and dictionaries are looked into up to a
limit; other objects of the program have no size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from joulediff.frameworks.framework import frameworks
from joulediff.instrument.rewriting.signals import is_of_signal_handler
from joulediff.instrument.rewriting.type_table import TypeTable

Measure = Callable[[Any], int | None]
# Lists of numbers and of texts are common, and long.
_MOST_ITEMS = 1000
_DEEPEST = 4


class _TooMany(Exception):
    """A value holds more objects than are looked at."""


def count_bytes(value: Any) -> int | None:
    """Return the bytes of the arrays in a value; None if it holds none, or more objects than are looked at."""
    measure = _measure_of(type(value))
    if measure is None:
        return None
    try:
        if measure is _measure_contents:
            return _count_contents(value, 0, [_MOST_ITEMS])
        return measure(value)
    except Exception as error:  # such as an array without storage, or a container that changes meanwhile
        if is_of_signal_handler(error):
            raise
        return None


def _count_contents(value: Any, depth: int, left: list[int]) -> int | None:
    total = None
    for each in _contents(value):
        left[0] -= 1
        if left[0] < 0:
            raise _TooMany
        measure = _measure_of(type(each))
        if measure is None:
            continue
        if measure is not _measure_contents:
            size_bytes = measure(each)
        else:
            size_bytes = _count_contents(each, depth + 1, left) if depth < _DEEPEST else None
        if size_bytes is not None:
            total = (total or 0) + size_bytes
    return total


def _contents(value: Any) -> Iterable[Any]:
    """Return what a container holds, without methods that a class of the program may define."""
    kind = type(value)  # `isinstance` would ask the object for its class
    if issubclass(kind, dict):
        return dict.values(value)
    if issubclass(kind, list):
        return list.__iter__(value)
    if issubclass(kind, tuple):
        return tuple.__iter__(value)
    # `collections.UserDict`
    data = object.__getattribute__(value, "__dict__").get("data")
    return dict.values(data) if type(data) is dict else ()


def _measure_contents(_value: Any) -> int | None:
    """Stand for `_count_contents`."""
    return None


def _nbytes(_array: Any) -> int | None:
    """Stand for the attribute `nbytes` of a library's own class, which a class of the program may define too."""
    return None


def _table(table: Any) -> int:
    """Return the bytes of a table or a column of pandas, without those of the objects in it."""
    used = table.memory_usage(deep=False)
    return int(used if isinstance(used, int) else used.sum())


def _sparse(array: Any) -> int | None:
    """Return the bytes of the arrays that a sparse array consists of."""
    names = vars(array)
    parts = [names.get(name) for name in ("data", "indices", "indptr", "row", "col", "offsets", "coords")]
    return _count_contents(parts, 0, [_MOST_ITEMS])


_PLAIN: dict[str, Measure] = {
    "numpy.ndarray": _nbytes,
    "numpy.generic": _nbytes,
    "pandas.DataFrame": _table,
    "pandas.Series": _table,
    "pandas.core.frame.DataFrame": _table,
    "pandas.core.series.Series": _table,
    "scipy.sparse._base._spbase": _sparse,
    "collections.UserDict": _measure_contents,
    "builtins.dict": _measure_contents,
    "builtins.list": _measure_contents,
    "builtins.tuple": _measure_contents,
}
_UNKNOWN: Any = object()
_known: TypeTable[Measure | None] = TypeTable()
_measures: dict[str, Measure] = {}


def _measure_of(kind: type) -> Measure | None:
    found: Measure | None = _known.get(kind, _UNKNOWN)
    return _known.put(kind, _find_measure(kind)) if found is _UNKNOWN else found


def _find_measure(kind: type) -> Measure | None:
    if not _measures:
        _measures.update(_PLAIN)
        for framework in frameworks():
            _measures.update(framework.array_sizes)
    # A C type that was never made ready has no order of bases.
    for each in type.__dict__["__mro__"].__get__(kind) or ():
        names = type.__dict__["__dict__"].__get__(each)
        module = names.get("__module__")
        if type(module) is not str:
            module = type.__dict__["__module__"].__get__(each) if module is None else ""
        found = _measures.get(f"{module}.{type.__dict__['__qualname__'].__get__(each)}")
        if found is _nbytes:
            read: Measure = names["nbytes"].__get__
            return read
        if found is not None:
            return found
    return None
