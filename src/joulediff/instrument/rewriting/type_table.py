"""A table by class that keeps no class alive, and calls no `__hash__` or `__eq__` of a metaclass."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class TypeTable(Generic[Value]):
    """Values by class, as long as the class lives."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[type], Value]] = {}

    def get(self, kind: type, default: Any = None) -> Any:
        found = self._values.get(id(kind))
        return default if found is None else found[1]

    def put(self, kind: type, value: Value) -> Value:
        values, key = self._values, id(kind)

        def forget(_: weakref.ref[type]) -> None:
            values.pop(key, None)

        values[key] = (weakref.ref(kind, forget), value)
        return value

    def clear(self) -> None:
        self._values.clear()
