"""Finds the lines of a program's own code that set the plain values its step can reach, by reading its files.

No code is run: a line that is found can set a value, which is no proof that it did. A line with the recorded value in
its text is preferred, then one with the longest part of the path, then the last.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.pysource.setting_sites import (
    UNKNOWN,
    Read,
    Setters,
    SourceNames,
    SourceText,
    last_word,
    line_at,
    read_source,
    value_in,
)

# More lines with the same numbers are data.
MAX_NUMBER_LINES = 200
# The words of a path: `opt.param_groups[0]['foreach']` has opt, param_groups, 0, foreach.
_WORD = re.compile(r"\w+")
_RECEIVER = "self"
# Methods that set the attribute in their name.
_SWITCH = re.compile(r"(?P<verb>enable|disable|set)_(?P<after>\w+)|(?P<before>\w+)_(?P<end>enable|disable)")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


class _Write(NamedTuple):
    """A line that gives `name` a value. `passed` is the name of a variable that holds the value."""

    name: str
    value: object
    passed: str | None
    target: tuple[str, ...]
    """The words of the target: `model.config.use_cache` has three; those of a call's argument are not known."""
    place: Place
    order: tuple[int, int, int]
    is_made: bool = False
    """The value is made by a call."""
    is_default: bool = False
    """The value of a parameter where a call leaves it out."""


def words_of(path: str) -> tuple[str, ...]:
    """Return the names and numbers in the path of a leaf, outermost first."""
    return tuple(_WORD.findall(path))


def find_leaf_places(
    leaves: Mapping[str, Setting], files: Mapping[str, Path], setters: Setters | None, *, read: Read = read_source
) -> dict[str, Place]:
    """Return the line that sets each leaf, if one is found; `files` maps shown names to real paths.

    For objects that begin the path of a leaf and that a call in the files makes, the line of that call is returned
    under the object's path.
    """
    writes: dict[str, list[_Write]] = {}
    for each in _writes_in(files, setters or Setters(package=""), read):
        writes.setdefault(each.name, []).append(each)
    found = {path: place for path, value in leaves.items() if (place := _setting_line(path, value, writes)) is not None}
    for begin in dict.fromkeys(begin for path in leaves for begin in _begins(path)):
        if begin not in found and (place := _making_line(begin, writes)) is not None:
            found[begin] = place
    return found


def find_number_places(numbers: Container[int], files: Mapping[str, Path], *, read: Read = read_source) -> list[Place]:
    """Return the lines with one of these whole numbers in their text, such as the sizes of tensors."""
    found: dict[Place, None] = {}
    for shown, path in files.items():
        source = read(path)
        for node, function in source.nodes:
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in numbers:
                found[Place(shown, node.lineno, function, line_at(source.lines, node.lineno))] = None
    return sorted(found, key=lambda place: (place.file, place.line))[:MAX_NUMBER_LINES]


def _begins(path: str) -> Iterator[str]:
    """Yield the begins of a path that name an object."""
    for each in list(_WORD.finditer(path))[:-1]:
        yield path[: each.end()]


def _making_line(path: str, writes: Mapping[str, list[_Write]]) -> Place | None:
    words = words_of(path)
    made = [each for each in writes.get(words[-1], ()) if each.is_made and each.target]
    return max(made, key=lambda each: (_shared(each.target, words), each.order)).place if made else None


def _setting_line(path: str, value: Setting, writes: Mapping[str, list[_Write]]) -> Place | None:
    words = words_of(path)
    found = [each for each in writes.get(words[-1].lstrip("_"), ()) if not each.is_made]
    found += [each for each in writes.get(words[-1], ()) if words[-1].startswith("_")]
    # `self.fused = fast` passes on a parameter of another name, which a call of the class gives.
    passed = {each.passed for each in found if each.passed is not None} - {words[-1]}
    found += [each for name in passed for each in writes.get(str(name), ()) if _has(each, value)]
    ranked = [(_rank(each, value), _shared(each.target, words), each.order, each) for each in found]
    possible = [each for each in ranked if each[0] > 0]
    return max(possible, key=lambda each: each[:3])[3].place if possible else None


def _rank(write: _Write, value: Setting) -> int:
    """Return how likely a line set a value: 4 and 3 it has that value, 2 and 1 an unknown one, 0 another one."""
    if _has(write, value):
        return 3 if write.is_default else 4
    if write.value is not UNKNOWN:
        return 0
    return 1 if write.passed is not None else 2


def _has(write: _Write, value: Setting) -> bool:
    return write.value is not UNKNOWN and (write.value == value or str(write.value) == str(value))


def _shared(target: tuple[str, ...], words: tuple[str, ...]) -> int:
    """Return how many words the ends of a target and a path share."""
    count = 0
    for mine, other in zip(reversed(target), reversed(words), strict=False):
        if mine != other:
            break
        count += 1
    return count


def _writes_in(files: Mapping[str, Path], setters: Setters, read: Read) -> Iterator[_Write]:
    sources = {shown: read(path) for shown, path in files.items()}
    parameters = {name: each for source in sources.values() for name, each in _parameters_in(source)}
    for number, (shown, source) in enumerate(sources.items()):
        names = SourceNames(source, setters)
        for node, function in source.nodes:
            for name, value, target in _sets(node, names, parameters):
                line = getattr(value.node or node, "lineno", 0) if isinstance(node, ast.Dict) else _line_of(node, value)
                place = Place(shown, line, function, line_at(source.lines, line))
                order = (number, line, getattr(node, "col_offset", 0))
                yield _Write(
                    name, value.value, value.passed, target, place, order, value.is_made, isinstance(node, _Definition)
                )


class _Given(NamedTuple):
    node: ast.AST | None
    value: object
    passed: str | None = None
    is_made: bool = False


def _line_of(node: ast.AST, given: _Given) -> int:
    """Return the line to report: that of an argument, or of the statement."""
    at = given.node if isinstance(node, ast.Call | _Definition) and given.node is not None else node
    return int(getattr(at, "lineno", 0))


def _given(node: ast.expr | None, names: SourceNames) -> _Given:
    value = names.value_of(node)
    if value is UNKNOWN and isinstance(node, ast.Tuple | ast.List):
        value = ast.unparse(node)
    is_name = isinstance(node, ast.Name | ast.Attribute) and value is UNKNOWN
    return _Given(node, value, last_word(node) if is_name and node is not None else None, isinstance(node, ast.Call))


_Set = tuple[str, _Given, tuple[str, ...]]


def _sets(node: ast.AST, names: SourceNames, parameters: Mapping[str, list[str]]) -> Iterator[_Set]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _assigned(target, node.value, names)
    elif isinstance(node, ast.AnnAssign):
        yield from _assigned(node.target, node.value, names)
    elif isinstance(node, ast.Call):
        yield from _arguments(node, names, parameters)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, _given(value, names), ()
    elif isinstance(node, _Definition):
        for name, default in _defaults(node):
            yield name, _given(default, names), ()


def _assigned(target: ast.expr, value: ast.expr | None, names: SourceNames) -> Iterator[_Set]:
    if isinstance(target, ast.Tuple | ast.List):
        values: Iterable[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            values = value.elts
        for each, part in zip(target.elts, values, strict=True):
            yield from _assigned(each, part, names)
        return
    words = tuple(each for each in words_of(ast.unparse(target)) if each != _RECEIVER)
    if words and not isinstance(target, ast.Starred) and (not isinstance(target, ast.Subscript) or _is_plain(target)):
        yield words[-1], _given(value, names), words


def _is_plain(target: ast.Subscript) -> bool:
    return isinstance(target.slice, ast.Constant)


def _arguments(call: ast.Call, names: SourceNames, parameters: Mapping[str, list[str]]) -> Iterator[_Set]:
    called = last_word(call.func)
    for each in call.keywords:
        if each.arg is not None:
            yield each.arg, _given(each.value, names)._replace(node=each), ()
    if not any(isinstance(each, ast.Starred) for each in call.args):
        for name, each_arg in zip(parameters.get(called, ()), call.args, strict=False):
            yield name, _given(each_arg, names), ()
    if called == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
        yield str(call.args[1].value), _given(call.args[2], names), ()
    if isinstance(call.func, ast.Attribute) and (switched := _SWITCH.fullmatch(called)) is not None:
        yield switched["after"] or switched["before"], _switched(call, switched, names), ()
    effect = names.setters.methods.get(called) if isinstance(call.func, ast.Attribute) else None
    if effect is not None and (effect.position is not None or not call.args):
        yield effect.setting, _Given(call, value_in(call, effect, names.value_of)), ()


def _switched(call: ast.Call, switched: re.Match[str], names: SourceNames) -> _Given:
    """Return the value that a method such as `enable_slicing` or `set_slicing` gives."""
    verb = switched["verb"] or switched["end"]
    if verb == "set":
        return _given(call.args[0] if call.args else None, names)._replace(node=call)
    return _Given(call, verb == "enable")


def _parameters_in(source: SourceText) -> Iterator[tuple[str, list[str]]]:
    """Yield the parameters of functions, and of classes by their constructor or their fields."""
    for node, _ in source.nodes:
        if isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, _Definition) and each.name == "__init__"]
            fields = [each.target.id for each in node.body if _is_field(each)]  # type: ignore[attr-defined]
            yield node.name, _names_of(made[0])[1:] if made else fields
        elif isinstance(node, _Definition):
            own = _names_of(node)
            yield node.name, own[1:] if own[:1] == [_RECEIVER] else own


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _names_of(function: _Definition) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)]


def _defaults(function: _Definition) -> Iterator[tuple[str, ast.expr]]:
    arguments = function.args
    positional = _names_of(function)
    yield from zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            yield each.arg, default
