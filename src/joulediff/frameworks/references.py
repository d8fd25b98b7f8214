"""The objects that a Python object refers to, each with its name and a way to put another value in its place.

Nothing of the program is executed: no property, no `__getattr__`, no iteration of an object that defines its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any, Literal

from joulediff.model.errors import JoulediffError

MAX_ITEMS = 256

ReferenceKind = Literal["attribute", "item", "key", "variable", "global", "same"]
"""How code names a reference: `x.name`, `x[0]`, `x['name']`, a variable of its own, or as its holder is named."""

Undo = Callable[[], None]
Write = Callable[[object], Undo]

# Classes of the standard library whose instances hold settings.
_NAMESPACES = (SimpleNamespace, argparse.Namespace)
_PLAIN = (bool, int, float, str)
_INTERNAL = "_internal"


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that another one refers to. `write` puts a value in its place and returns how to undo that."""

    name: str
    value: object
    write: Write
    kind: ReferenceKind = "attribute"


def refuse(why: str) -> Write:
    """Return a write that raises JoulediffError with its reason."""

    def write(_: object) -> Undo:
        raise JoulediffError(why)

    return write


def callable_references(thing: Any) -> Iterator[Reference] | None:
    """Return the references of a function, a bound method or a partial function; None for any other object."""
    if isinstance(thing, functools.partial):
        return _partial_references(thing)
    if inspect.ismethod(thing):
        return _method_references(thing)
    if inspect.isfunction(thing):
        return function_references(thing)
    return None


def _partial_references(thing: functools.partial[Any]) -> Iterator[Reference]:
    yield Reference("", thing.func, refuse("the function of a partial cannot be replaced"), "same")
    for i, each in enumerate(thing.args):
        yield Reference(f"args.{i}", each, _write_partial_argument(thing, i))
    for name, each in thing.keywords.items():
        yield Reference(name, each, write_item(thing.keywords, name))


def _write_partial_argument(thing: Any, at: int) -> Write:
    def put(value: object) -> None:
        args = (*thing.args[:at], value, *thing.args[at + 1 :])
        thing.__setstate__((thing.func, args, thing.keywords, vars(thing) or None))

    def write(value: object) -> Undo:
        before = thing.args[at]
        put(value)
        return lambda: put(before)

    return write


def _method_references(thing: MethodType) -> Iterator[Reference]:
    yield Reference("self", thing.__self__, refuse("the object of a method cannot be replaced"), "variable")
    yield Reference("", thing.__func__, refuse("the function of a method cannot be replaced"), "same")


def function_references(function: Any) -> Iterator[Reference]:
    """Yield what a function refers to: a function that it wraps, closure variables, globals and defaults."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield Reference("", wrapped, refuse("a wrapped function cannot be replaced"), "same")
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Reference(name, cell.cell_contents, _write_cell(cell), "variable")
        except ValueError:
            continue  # nothing in it yet
    table = function.__globals__
    for name in dict.fromkeys(_names_in(function.__code__)):
        if name in table:
            yield Reference(name, table[name], write_item(table, name), "global")
    yield from _defaults(function)


def _defaults(function: FunctionType) -> Iterator[Reference]:
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    for i, (name, each) in enumerate(zip(names, values, strict=True)):
        yield Reference(name, each, _write_default(function, i))
    named = function.__kwdefaults__ or {}
    yield from (Reference(name, each, write_item(named, name)) for name, each in named.items())


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function uses, also in its comprehensions and inner functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _write_cell(cell: Any) -> Write:
    def write(value: object) -> Undo:
        before = cell.cell_contents
        cell.cell_contents = value
        return lambda: setattr(cell, "cell_contents", before)

    return write


def _write_default(function: FunctionType, at: int) -> Write:
    def write(value: object) -> Undo:
        before = function.__defaults__ or ()
        function.__defaults__ = (*before[:at], value, *before[at + 1 :])
        return lambda: setattr(function, "__defaults__", before)

    return write


def write_item(table: Any, key: Any) -> Write:
    """Return the write of an entry of a dictionary or a list, by the methods of `dict` and `list` themselves."""
    kind: Any = dict if isinstance(table, dict) else list

    def write(value: object) -> Undo:
        before = kind.__getitem__(table, key)
        kind.__setitem__(table, key, value)
        return lambda: kind.__setitem__(table, key, before)

    return write


def parts_of(thing: Any) -> Iterator[tuple[str, object]]:
    """Yield the objects that a function, a container or any other object refers to, with their names."""
    callables = callable_references(thing)
    if callables is not None:
        is_method = inspect.ismethod(thing)
        yield from (("" if is_method else each.name, each.value) for each in callables)
    elif isinstance(thing, Mapping):
        yield from ((str(key), each) for key, each in islice(thing.items(), MAX_ITEMS) if isinstance(key, str | int))
    elif isinstance(thing, list | tuple):
        yield from ((str(i), each) for i, each in enumerate(thing[:MAX_ITEMS]))
    elif not isinstance(thing, type) and not inspect.ismodule(thing):
        yield from ((each.name, each.value) for each in object_references(thing))


def container_references(thing: Any) -> Iterator[Reference] | None:
    """Return the entries of a dictionary with string keys, a list or a tuple; None for any other object."""
    kind = type(thing)
    if issubclass(kind, dict):
        return (
            Reference(key, each, write_item(thing, key), "key")
            for key, each in islice(dict.items(thing), MAX_ITEMS)
            if isinstance(key, str)
        )
    if issubclass(kind, list):
        pairs = islice(enumerate(list.__iter__(thing)), MAX_ITEMS)
        return (Reference(str(i), each, write_item(thing, i), "item") for i, each in pairs)
    if issubclass(kind, tuple):
        return _tuple_references(thing)
    return None


def _tuple_references(thing: Any) -> Iterator[Reference]:
    names = getattr(type(thing), "_fields", ())
    write = refuse("an entry of a tuple cannot be set")
    for i, each in islice(enumerate(tuple.__iter__(thing)), MAX_ITEMS):
        named = i < len(names)
        yield Reference(str(names[i]) if named else str(i), each, write, "attribute" if named else "item")


def object_references(thing: Any, *, until: type = object) -> Iterator[Reference]:
    """Yield the attributes of an object: its own, its slots, and plain public ones of its classes below `until`."""
    kind = type(thing)
    params = getattr(kind, "__dataclass_params__", None)
    frozen = dataclasses.is_dataclass(kind) and params is not None and params.frozen
    refused = refuse(f"{kind.__qualname__} is a frozen dataclass: its fields cannot be set") if frozen else None
    own = _own_dict(thing)
    for name, each in islice(list(own.items()), MAX_ITEMS):
        if isinstance(name, str) and not name.startswith("__"):
            shown, write = _attribute(thing, own, name)
            yield Reference(shown, each, refused or write)
    classes = kind.__mro__[: kind.__mro__.index(until)] if until in kind.__mro__ else kind.__mro__[:-1]
    for name, each in _class_table(classes).items():
        if isinstance(each, MemberDescriptorType):
            yield from _slot(thing, name, each, refused)
        elif name not in own and isinstance(each, _PLAIN) and not name.startswith("_"):
            yield Reference(name, each, refused or _write_new(own, name))


def _own_dict(thing: Any) -> dict[Any, Any]:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _class_table(classes: tuple[type, ...]) -> dict[str, object]:
    """Return the attributes of classes; those of the first class come first."""
    found: dict[str, object] = {}
    for kind in classes:
        for name, each in vars(kind).items():
            if not name.startswith("__"):
                found.setdefault(name, each)
    return found


def _attribute(thing: Any, own: dict[Any, Any], name: str) -> tuple[str, Write]:
    """Return the name that code has for an attribute, and its write.

    `_x_internal` behind a property `_x` is written through the property: other objects may have to follow.
    """
    if name.endswith(_INTERNAL):
        shown = name.removesuffix(_INTERNAL)
        found = inspect.getattr_static(type(thing), shown, None)
        if isinstance(found, property) and found.fset is not None:
            return shown, _write_property(thing, own, name, shown)
    return name, write_item(own, name)


def _write_property(thing: Any, own: dict[Any, Any], name: str, shown: str) -> Write:
    def write(value: object) -> Undo:
        before = own[name]
        try:
            setattr(thing, shown, value)
        except (AttributeError, TypeError, ValueError) as error:
            own[name] = before
            raise JoulediffError(f"{type(thing).__qualname__} refuses {shown} = {value!r}: {error}") from error
        return lambda: own.__setitem__(name, before)

    return write


def _write_new(own: dict[Any, Any], name: str) -> Write:
    """Return the write of an attribute that only the class of an object has: the object gets its own."""

    def write(value: object) -> Undo:
        own[name] = value
        return lambda: own.pop(name, None)

    return write


def _slot(thing: Any, name: str, slot: MemberDescriptorType, refused: Write | None) -> Iterator[Reference]:
    try:
        value = slot.__get__(thing, type(thing))
    except AttributeError:
        return  # nothing in it

    def write(new: object) -> Undo:
        slot.__set__(thing, new)
        return lambda: slot.__set__(thing, value)

    yield Reference(name, value, refused or write)


def namespace_references(thing: Any) -> Iterator[Reference]:
    """Yield the public attributes of a module or a class that is used as a namespace."""
    for name, each in islice(list(vars(thing).items()), MAX_ITEMS):
        if isinstance(name, str) and not name.startswith("_") and not isinstance(each, GetSetDescriptorType | property):
            yield Reference(name, each, _write_member(thing, name))


def _write_member(thing: Any, name: str) -> Write:
    def write(value: object) -> Undo:
        before = vars(thing)[name]
        setattr(thing, name, value)
        return lambda: setattr(thing, name, before)

    return write


def is_walkable(thing: object) -> bool:
    """Return whether an object's attributes may be settings: not a file, a lock or a logger of the standard library."""
    kind = type(thing)
    home = (kind.__module__ or "").partition(".")[0]
    return home not in sys.stdlib_module_names or home == "__main__" or issubclass(kind, _NAMESPACES)
