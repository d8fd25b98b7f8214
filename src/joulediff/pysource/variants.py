"""A program's own source files, and the program built again in this process from changed ones.

A variant has modules of its own: those of the program stay as they are, and `sys.modules` holds the variant's only
within `active`. Libraries are shared.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import itertools
import linecache
import os
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.pysource.call_path import MAX_FILE_BYTES, name_file
from joulediff.pysource.code_owner import is_ours
from joulediff.pysource.framework_hints import NO_HINTS, FrameworkHints
from joulediff.pysource.programs import Step, is_file, load_step, split_target
from joulediff.pysource.source_files import SourceFile

MAX_FILES = 64


@dataclass(frozen=True, slots=True)
class _OwnModule:
    """A module of the user's own code. `names` are all that it is imported by; `shown` is its file in recordings."""

    names: tuple[str, ...]
    real: str
    shown: str


def read_own_files(target: str, *, root: Path, hints: FrameworkHints = NO_HINTS) -> tuple[SourceFile, ...]:
    """Return the source of a program that has been loaded: its own file first, then the modules that it imports.

    Files are named as in call paths. Those that cannot be read are left out.
    """
    found = []
    for number, module in enumerate(_own_modules(target, root, hints)):
        text = _read(module.real)
        if text is not None:
            found.append(SourceFile("" if number == 0 else module.names[0], module.shown, text))
    return tuple(found)


@dataclass(slots=True)
class BuiltVariant:
    """A program built from changed source files."""

    step: Step
    _modules: Mapping[str, ModuleType] = field(default_factory=dict)
    _names: frozenset[str] = frozenset()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let imports find the modules of the variant within the context."""
        with _own_names_restored(self._names):
            sys.modules.update(self._modules)
            yield


def build_variant(
    target: str,
    files: Sequence[SourceFile],
    *,
    root: Path,
    hints: FrameworkHints = NO_HINTS,
    build: Callable[[Callable[[], Step]], Step] | None = None,
    is_step: bool = RecordOptions.is_step,
) -> BuiltVariant:
    """Return a program built again with the text of `files`, which are named as `read_own_files` names them.

    `build` calls the function that runs the program's file and builds the step, by default at once; with `is_step` the
    target names the step itself. Raises what the changed program raises.
    """
    own = _own_modules(target, root, hints)
    by_shown = {module.shown: module for module in own}
    new = {file.module: file for file in files if file.path not in by_shown}
    if "" in new:
        raise JoulediffError(f"{new[''].path} is no file of this program")
    texts = {by_shown[file.path].real: file.text for file in files if file.path in by_shown}
    changed = {real: text for real, text in texts.items() if text != _read(real)}
    names = frozenset((*new, *(name for module in own for name in module.names)))
    with _own_names_restored(names), _served(changed), _found(new, Path(own[0].real).parent), _path_restored():
        make = partial(load_step, target, is_step=is_step)
        step = make() if build is None else build(make)
        modules = {name: sys.modules[name] for name in names if name in sys.modules}
    return BuiltVariant(step, modules, names)


@contextmanager
def _own_names_restored(names: frozenset[str]) -> Iterator[None]:
    """Take the user's own modules out of `sys.modules` within the context."""
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@contextmanager
def _path_restored() -> Iterator[None]:
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _served(changed: Mapping[str, str]) -> Iterator[None]:
    """Compile these texts in place of their files within the context."""
    codes = {real: _compile(real, text) for real, text in changed.items()}
    loader: Any = importlib.machinery.SourceFileLoader
    get_code = loader.get_code  # inherited

    def get_changed_code(self: Any, fullname: str) -> CodeType | None:
        found = codes.get(str(Path(self.path).resolve()))
        original: CodeType | None = get_code(self, fullname) if found is None else found
        return original

    loader.get_code = get_changed_code
    try:
        yield
    finally:
        del loader.get_code


class _NewModules(InspectLoader, MetaPathFinder):
    """Finds modules that only the changed program has."""

    def __init__(self, files: Mapping[str, SourceFile], folder: Path) -> None:
        self._files = files
        self._folder = folder

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return spec_from_loader(fullname, self) if fullname in self._files else None

    def get_source(self, fullname: str) -> str:
        return self._files[fullname].text

    def get_code(self, fullname: str) -> CodeType:
        return _compile(str(self._folder / f"{fullname.rpartition('.')[2]}.py"), self.get_source(fullname))


@contextmanager
def _found(new: Mapping[str, SourceFile], folder: Path) -> Iterator[None]:
    """Let imports find new modules within the context."""
    finder = _NewModules(new, folder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# Tracebacks and inspection read the lines of changed code by its name for as long as it exists.
_NUMBERS = itertools.count(1)


def _compile(real: str, text: str) -> CodeType:
    """Return the code of a changed file, under a name of its own: its lines are not those of the file."""
    path = Path(real)
    name = str(path.with_name(f"{path.stem}.changed{next(_NUMBERS)}.py"))
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        return compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise JoulediffError(f"the changed source cannot be compiled: {error}") from error


def _own_modules(target: str, root: Path, hints: FrameworkHints) -> list[_OwnModule]:
    """Return the user's own modules that are loaded, that of the program first."""
    program = _program_file(target)
    base = str(root) + os.sep
    folders = tuple({base, str(Path(program).parent) + os.sep})
    names: dict[str, list[str]] = {program: []}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_ours(file):
            continue
        real = str(Path(file).resolve())
        is_near = real.startswith(folders) and name_file(file, base, hints)[1] is None
        if (real == program or is_near) and name != "__main__" and len(names) < MAX_FILES:
            names.setdefault(real, []).append(name)
    return [_OwnModule(tuple(each), real, name_file(real, base, hints)[0]) for real, each in names.items()]


def _program_file(target: str) -> str:
    place, _ = split_target(target)
    if is_file(place):
        return str(Path(place).resolve())
    spec: ModuleSpec | None = None
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(place)
    if spec is None or spec.origin is None:
        raise JoulediffError(f"the source of {place} cannot be read")
    return str(Path(spec.origin).resolve())


def _read(real: str) -> str | None:
    try:
        if Path(real).stat().st_size > MAX_FILE_BYTES:
            return None
        with tokenize.open(real) as stream:
            return stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None
