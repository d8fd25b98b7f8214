"""The plain values that a step can reach, by the names that its program has for them: `model.config.use_cache`.

A step is searched like an object graph: closure variables, defaults, globals that the program's own code names,
attributes, entries of dictionaries and short lists. A framework describes its own objects. Reading executes nothing of
the program and changes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

from joulediff.frameworks.framework import loaded_frameworks, source_hints
from joulediff.frameworks.references import (
    Reference,
    Undo,
    callable_references,
    container_references,
    function_references,
    is_walkable,
    namespace_references,
    object_references,
)
from joulediff.frameworks.settings import UNREADABLE, is_shareable
from joulediff.model.errors import JoulediffError
from joulediff.model.run import MAX_SETTING_CHARS, Setting, to_setting
from joulediff.pysource.call_path import STANDARD_LIBRARY, name_file
from joulediff.pysource.code_owner import is_ours

MAX_LEAVES = 5000
MAX_OBJECTS = 20_000
# A recording stores leaves beside its settings and notes, in a manifest of at most a MiB.
MAX_RECORDED_CHARS = 250_000
# A module inside a model of several parts, in an attribute of an object in a closure.
MAX_DEPTH = 16
# Longer lists are data.
MAX_LISTED = 16
# A larger integer is a hash or an address.
MAX_INTEGER = 2**53
# Entries in which models and configurations record their origin, and that they have been set up.
_NO_OPTIONS = frozenset(
    """
    _name_or_path name_or_path _commit_hash _original_object_hash transformers_version _diffusers_version _class_name
    _use_default_values _from_model_config _is_hf_initialized _post_init_done id2label label2id
    """.split()  # noqa: SIM905 - read as words
)
# They run when the program is built, and not in the step.
_BUILDERS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__")

_Recorded = TypeVar("_Recorded", bound=Setting)

_SCALARS = (bool, int, float, str)
_CONSTANTS = ("dtype", "device", "layout", "memory_format")


class _Found(NamedTuple):
    value: Setting
    reference: Reference


def read_leaves(step: object) -> dict[str, Setting]:
    """Return the plain values that `step` can reach, by path."""
    return {path: found.value for path, found in _Walk(step).leaves.items()}


def steady_leaves(before: Mapping[str, Setting], after: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the leaves that are the same after the step has run: a leaf that it changes is no configuration."""
    return {path: value for path, value in before.items() if path in after and after[path] == value}


def fitting_leaves(leaves: Mapping[str, _Recorded]) -> dict[str, _Recorded]:
    """Return the leaves, or their places, that a recording has room for, the nearest first."""
    found, left = {}, MAX_RECORDED_CHARS
    for path, value in leaves.items():
        left -= len(json.dumps(path)) + len(json.dumps(value))
        if left < 0:
            break
        found[path] = value
    return found


@contextmanager
def leaves_set(step: object, values: Mapping[str, Setting]) -> Iterator[Callable[[], None]]:
    """Set leaves within the context, and put back each one. Raises JoulediffError for one that cannot be set.

    Yields a function that sets them again, for leaves that the program, or the restoring of its state, has reset.
    """
    before = _Walk(step).leaves
    missing = [path for path in values if path not in before]
    if missing:
        raise JoulediffError(f"the step cannot reach {', '.join(missing)}")
    new = {path: _to_object(path, value, before[path]) for path, value in values.items()}

    with ExitStack() as stack:

        def set_all() -> None:
            for path, value in new.items():
                stack.callback(_write(path, before[path].reference, value))

        set_all()
        # A property may have changed other leaves along with its own.
        for path, found in _Walk(step).leaves.items():
            if path not in values and path in before and found.value != before[path].value:
                stack.callback(_put_back, found.reference, before[path].reference.value)
        yield set_all


def _write(path: str, reference: Reference, value: object) -> Undo:
    try:
        return reference.write(value)
    except JoulediffError as error:
        raise JoulediffError(f"{path} cannot be set: {error.what}") from error
    except UNREADABLE as error:
        raise JoulediffError(f"{path} cannot be set: {type(error).__name__}: {error}") from error


def _put_back(reference: Reference, value: object) -> None:
    reference.write(value)


def _to_object(path: str, value: Setting, found: _Found) -> object:
    """Return the object that a leaf holds for a recorded value: of the kind that it holds now."""
    now = found.reference.value
    if value is None or not isinstance(value, str):
        return value
    if isinstance(now, enum.Enum):
        names = type(now).__members__
        if (name := value.rpartition(".")[2]) in names:
            return names[name]
        raise JoulediffError(f"{path} cannot be set: {type(now).__name__} has no member {name}")
    if isinstance(now, list | tuple):
        return _to_sequence(path, value, type(now))
    if callable(now):
        return _named_object(path, value)
    is_constant = type(now).__name__ in _CONSTANTS
    if is_constant or (now is None and path.endswith(_CONSTANTS)):
        constant = _framework_constant(value)
        if constant is not None or not is_constant:
            return value if constant is None else constant
        raise JoulediffError(f"{path} cannot be set: {value} is no {type(now).__name__}")
    return value


def _to_sequence(path: str, text: str, kind: type) -> object:
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        raise JoulediffError(f"{path} cannot be set: {text!r} is no list of plain values") from None
    return found if isinstance(found, kind) else kind(found)


def _framework_constant(text: str) -> object | None:
    readers = (each.read_constant for each in loaded_frameworks() if each.read_constant is not None)
    return next((found for read in readers if (found := read(text)) is not None), None)


def _named_object(path: str, name: str) -> object:
    """Return a function or class by its qualified name, in a module that the program has loaded."""
    words = name.split(".")
    for length in range(len(words) - 1, 0, -1):
        module = sys.modules.get(".".join(words[:length]))
        if module is not None:
            with contextlib.suppress(AttributeError):
                return reduce(inspect.getattr_static, words[length:], module)
    raise JoulediffError(f"{path} cannot be set: {name} cannot be found by its name")


class _Walk:
    """Visits the objects that a step refers to, the nearest first, each once under its first name."""

    def __init__(self, step: object) -> None:
        self.leaves: dict[str, _Found] = {}
        self._describers = [each.references_of for each in loaded_frameworks() if each.references_of is not None]
        self._hints = source_hints()
        self._root = str(Path.cwd())
        self._owners: dict[str, str | None] = {}
        self._home = self._module_of(step)
        self._seen: set[int] = set()
        self._classes: set[type] = set()
        self._kept: list[object] = []
        self._queue: deque[tuple[str, object, int]] = deque([("", step, 0)])
        while self._queue and len(self._seen) < MAX_OBJECTS and len(self.leaves) < MAX_LEAVES:
            path, thing, depth = self._queue.popleft()
            if depth <= MAX_DEPTH and id(thing) not in self._seen:
                self._seen.add(id(thing))
                self._kept.append(thing)  # its id must not be reused
                self._visit(path, thing, depth)

    def _visit(self, path: str, thing: object, depth: int) -> None:
        with contextlib.suppress(*UNREADABLE):
            if not path and not callable_references(thing):
                path = "self"
            for each in self._references(thing):
                self._take(path, each, thing, depth)

    def _take(self, path: str, each: Reference, holder: object, depth: int) -> None:
        name, value = self._name(path, each, holder), each.value
        if each.kind == "same":
            self._queue.appendleft((name, value, depth))
            return
        if each.name in _NO_OPTIONS or "__" in each.name:
            return
        leaf = _to_leaf(each.name, value, self._is_own)
        if leaf is not None and each.kind != "item":
            if name in self.leaves and each.kind in ("variable", "global") and path:
                name = f"{path}.{each.name}"
            if is_shareable(each.name, leaf.value) and len(self.leaves) < MAX_LEAVES:
                self.leaves.setdefault(name, _Found(leaf.value, each))
        if leaf is None or isinstance(value, FunctionType | type):
            self._queue.append((name, value, depth + 1))

    def _name(self, path: str, each: Reference, holder: object) -> str:
        if each.kind == "variable":
            return each.name
        if each.kind == "global":
            home = self._module_of(holder)
            return each.name if home in (None, self._home) else f"{home}.{each.name}"
        if each.kind == "item":
            return f"{path}[{each.name}]"
        if each.kind == "key":
            return f"{path}[{each.name!r}]"
        return f"{path}.{each.name}" if path and each.name else path or each.name

    def _references(self, thing: Any) -> Iterable[Reference]:
        for describe in self._describers:
            if (found := describe(thing)) is not None:
                self._queue_methods(type(thing))
                return found
        if inspect.isfunction(thing):
            return self._function_references(thing)
        if (found := callable_references(thing)) is not None:
            return found
        if (found := container_references(thing)) is not None:
            return found
        if isinstance(thing, ModuleType):
            return self._namespace(thing) if self._is_own(thing.__name__) else ()
        if isinstance(thing, type):
            if not self._is_own(thing.__module__):
                return ()
            self._queue_methods(thing)
            return self._namespace(thing)
        if not is_walkable(thing):
            return ()
        self._queue_methods(type(thing))
        return object_references(thing)

    def _namespace(self, thing: Any) -> Iterator[Reference]:
        """Yield plain values of a module or a class, and objects, without what the module only defines or imports."""
        for each in namespace_references(thing):
            if not isinstance(each.value, FunctionType | ModuleType | type | staticmethod | classmethod):
                yield each

    def _function_references(self, function: Any) -> Iterator[Reference]:
        """Yield the references of the program's own function; of a library's only what it wraps."""
        is_own = self._is_own_file(function.__code__.co_filename)
        for each in function_references(function):
            if each.kind == "same" or (is_own and not self._is_foreign(each.value)):
                yield each

    def _is_foreign(self, value: object) -> bool:
        return isinstance(value, ModuleType) and not self._is_own(value.__name__)

    def _queue_methods(self, kind: type) -> None:
        """Queue the methods of the program's own classes, for the globals and defaults that they use."""
        if kind in self._classes or not self._is_own(kind.__module__):
            return
        self._classes.add(kind)
        for each in kind.__mro__:
            if not self._is_own(each.__module__):
                continue
            for name, member in vars(each).items():
                if isinstance(member, FunctionType) and name not in _BUILDERS and not _is_generated(member):
                    self._queue.append((member.__qualname__, member, MAX_DEPTH // 2))

    def _module_of(self, thing: object) -> str | None:
        function = thing.__func__ if inspect.ismethod(thing) else thing
        if not isinstance(function, FunctionType):
            return None
        return str(function.__globals__.get("__name__"))

    def _is_own(self, module: str | None) -> bool:
        """Return whether a module is the program's own code, and not a library's."""
        if module is None or module == "builtins":
            return False
        if module == "__main__":
            return True
        file = getattr(sys.modules.get(module), "__file__", None)
        return isinstance(file, str) and self._is_own_file(file)

    def _is_own_file(self, file: str) -> bool:
        if file not in self._owners:
            owner = name_file(file, self._root, self._hints)[1]
            self._owners[file] = STANDARD_LIBRARY if is_ours(file) else owner
        return self._owners[file] is None


def _is_generated(function: FunctionType) -> bool:
    """Return whether a method was generated from text, such as those of a dataclass."""
    return function.__code__.co_filename.startswith("<string")


class _Leaf(NamedTuple):
    value: Setting


def _to_leaf(name: str, value: object, is_own: Callable[[str | None], bool]) -> _Leaf | None:
    """Return the recorded form of a value; None if it is no leaf."""
    if isinstance(value, enum.Enum):
        return _Leaf(f"{type(value).__name__}.{value.name}")
    if isinstance(value, str) and (len(value) > MAX_SETTING_CHARS or not value.isprintable()):
        return None
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return None
    if isinstance(value, list | tuple) and not hasattr(type(value), "_fields"):
        return _sequence_leaf(value)
    if isinstance(value, FunctionType | type) or inspect.isbuiltin(value):
        return _callable_leaf(name, value, is_own)
    with contextlib.suppress(TypeError):
        return _Leaf(to_setting(value))
    return None


def _sequence_leaf(value: list[Any] | tuple[Any, ...]) -> _Leaf | None:
    plain = all(each is None or isinstance(each, _SCALARS) for each in value[:MAX_LISTED])
    if len(value) > MAX_LISTED or not plain:
        return None
    kind: Any = list if isinstance(value, list) else tuple
    text = repr(kind(value))
    return _Leaf(text) if len(text) <= MAX_SETTING_CHARS else None


def _callable_leaf(name: str, value: Any, is_own: Callable[[str | None], bool]) -> _Leaf | None:
    """Return the qualified name of a function or class; None where it has no other name than its definition."""
    title = str(getattr(value, "__qualname__", ""))
    if title.rpartition(".")[2] == name:
        return None
    home = getattr(value, "__module__", None)
    return _Leaf(title if home is None or is_own(home) else f"{home}.{title}")
