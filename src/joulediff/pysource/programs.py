"""Find a program by name and build its step.

`FILE.py` means `FILE.py:build`; `FILE.py:name` and `package.module:name` work too. The named
function sets up once and returns the step: a callable without arguments that returns its outputs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from joulediff.model.errors import ProgramError, WrongType
from joulediff.model.options import RecordOptions
from joulediff.pysource.builders import (
    check_builder,
    is_a_class,
    missing,
    needs_arguments,
    needs_more_than_size,
    runs_nothing,
    takes_no_size,
    with_article,
)
from joulediff.pysource.code_owner import is_ours
from joulediff.pysource.scripts import check_script

Step = Callable[[], object]

_LAZY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_LIBRARIES = tuple({sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")})


class UserCodeFailed(ProgramError):
    """The user's own code raised. `__cause__` is its exception, unchanged."""


def load_step(target: str, *, is_step: bool = RecordOptions.is_step) -> Step:
    """Return the step that `target` builds, or with `is_step` names."""
    return load_builder(target, is_step=is_step)()


def load_builder(target: str, *, is_step: bool = RecordOptions.is_step) -> Callable[[], Step]:
    """Return the function that builds the step of `target`. The file is executed now, with its imports.

    With `is_step` the target names the step itself. A function that cannot build one is refused before anything runs,
    if its source shows it.
    """
    found, name, place = _find_function(target, is_step=is_step)
    if not is_step:
        _refuse_arguments(found, f"{name}() in {place}")
        return lambda: _build(found, f"{name}() in {place}")
    if inspect.isclass(found):
        raise is_a_class(name, place)
    check_step(found, f"{name}() in {place}")
    return lambda: found


def load_sized(target: str, *, is_step: bool = RecordOptions.is_step) -> Callable[[int], Step]:
    """Return a function that builds the step of `target` for a size. The file is executed now, with its imports.

    The named function takes the size and returns the step; with `is_step` a call of it with the size is the step.
    """
    found, name, place = _find_function(target, is_step=is_step, is_sized=True)
    return sized_builder(found, f"{name}() in {place}", is_step=is_step)


def sized_builder(function: object, what: str, *, is_step: bool = RecordOptions.is_step) -> Callable[[int], Step]:
    """Return a function that builds a step for a size, from one that takes the size; `what` names it."""
    if not callable(function):
        raise WrongType(
            f"{what} must be a function of the size, and it is {shown_type(function)}",
            fix="give a function that takes the size and returns the step",
        )
    _refuse_no_size(function, what, is_step=is_step)
    if not is_step:
        return lambda size: _build(functools.partial(function, size), what)
    if inspect.isclass(function):
        raise is_a_class(function.__name__, what.rpartition(" in ")[2])
    if any(is_lazy(function) for is_lazy in _LAZY):
        raise runs_nothing(what)
    return lambda size: functools.partial(function, size)


def _find_function(target: str, *, is_step: bool, is_sized: bool = False) -> tuple[Callable[..., object], str, str]:
    """Return the function that a target names, its name and its place; the file is executed."""
    check_program(target, is_step=is_step, is_sized=is_sized)
    place, name = split_target(target)
    if is_file(place):
        module = _load_file(Path(place))
    else:
        module = _load_module(place, name, is_step=is_step, is_sized=is_sized)
    found = getattr(module, name, None)
    if found is None:
        functions = {n: v for n, v in vars(module).items() if inspect.isfunction(v) and not n.startswith("_")}
        defined = [n for n, v in functions.items() if v.__module__ == module.__name__]
        raise missing(place, name, defined, [], is_step=is_step, is_sized=is_sized)
    if not callable(found):
        raise ProgramError(
            f"{name} in {place} is {_article(found)}, not a function",
            fix=f"name a function that {'is' if is_step else 'returns'} the step",
        )
    return found, name, place


def check_program(target: str, *, is_step: bool = RecordOptions.is_step, is_sized: bool = False) -> None:
    """Raise ProgramError if the source of a program's file shows that it has no such builder or step. Nothing runs."""
    place, name = split_target(target)
    if is_step and place == target:
        raise ProgramError(f"--step needs the name of a function, and {target} names none", fix=f"give {place}:NAME")
    if not is_file(place) or Path(place).suffix != ".py":
        return
    try:
        source = Path(place).read_bytes()
    except OSError:
        return  # loading it says why
    check_builder(source, name, place, is_step=is_step, is_sized=is_sized)


def check_target(target: str, options: RecordOptions) -> None:
    """Raise ProgramError if the source of a program's file shows that it has no such step. Nothing runs."""
    if options.loop is None:
        check_program(target, is_step=options.is_step)
        return
    place, name = split_target(target)
    if options.is_step:
        raise ProgramError(
            "the step is a function (--step) or the body of a loop (--loop)", fix="leave out one of them"
        )
    if place != target:
        raise ProgramError(f"--loop needs a script, and {target} names a function", fix=f"give {place} --loop {name}")
    check_script(place, parses=False)  # the Python that runs it may be another version


def _build(build: Callable[..., object], what: str) -> Step:
    step = _call(build, what)
    if not callable(step):
        name = what.partition("(")[0]
        raise ProgramError(
            f"{what} returned {_article(step)}, and a step must be callable",
            fix=f"return a function without arguments, for example: return lambda: model(x)  (in {name})",
        )
    check_step(step, f"the step that {what} returned")
    return step


def check_step(step: object, what: str) -> None:
    """Raise for an object that cannot be called as a step; `what` names it."""
    if not callable(step):
        raise WrongType(
            f"{what} must be a function, and it is {shown_type(step)}",
            fix="give a function without arguments, for example: lambda: model(x)",
        )
    _refuse_arguments(step, what)
    if any(is_lazy(step) for is_lazy in _LAZY):
        raise runs_nothing(what)


def name_of(step: Callable[..., object]) -> str:
    """Return a short name for a callable: of its function, of its class, or the line of a lambda."""
    while isinstance(step, functools.partial):
        step = step.func
    name = getattr(step, "__name__", None)
    if not isinstance(name, str):
        return type(step).__name__
    if name == "<lambda>" and inspect.isfunction(step):
        return f"lambda at line {step.__code__.co_firstlineno}"
    return f"{type(step.__self__).__name__}.{name}" if inspect.ismethod(step) else name


def label_of(target: str) -> str:
    """Return a short name for a program: the file's stem, with the function where it is not `build`."""
    place, name = split_target(target)
    stem = Path(place).stem if is_file(place) else place.rpartition(".")[2]
    return stem if name == "build" else f"{stem}:{name}"


def split_target(target: str) -> tuple[str, str]:
    """Return the file or module of a target, and the name of its function."""
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        return target, "build"
    return place, name


def is_file(place: str) -> bool:
    """Return whether the place of a target is a file, and not a module."""
    if place.endswith(".py") or "/" in place or "\\" in place:
        return True
    return Path(place).exists() and not (Path(place) / "__init__.py").exists()


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise ProgramError(f"{path} is a folder, not a program", fix=f"name a file in it: {path / 'FILE.py'}")
    if not path.exists():
        near = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
        raise ProgramError(
            f"there is no file {path}",
            fix=f"{path.parent}/ has: {', '.join(near[:8])}" if near else "check the path, and the folder you are in",
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ProgramError(
            f"{path} is not a Python file", fix="name a program (FILE.py) or, for a recording, a file that ends in .jd"
        )
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # a program imports its neighbours, as under `python FILE.py`
    sys.modules.setdefault(path.stem, module)
    loader = spec.loader
    _call(lambda: loader.exec_module(module), str(path))
    return module


def _load_module(name: str, function: str, *, is_step: bool, is_sized: bool) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    missing = ProgramError(f"there is no file and no module called {name}", fix="give FILE.py[:name] or module:name")
    if not name or name.startswith("."):
        raise missing
    try:
        module = _call(lambda: _import_checked(name, function, is_step=is_step, is_sized=is_sized), name)
    except UserCodeFailed as error:
        # Tell a missing module or package from one whose own import failed.
        absent = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if absent is not None and f"{name}.".startswith(f"{absent}."):
            raise missing from error
        raise
    assert isinstance(module, ModuleType)
    return module


def _import_checked(name: str, function: str, *, is_step: bool, is_sized: bool) -> ModuleType:
    """Import a module whose source does not refuse `function`. Packages around it are imported to find its file."""
    with suppress(ValueError):  # a module that was made without a file
        spec = importlib.util.find_spec(name)
        path = Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None
        if path is not None and path.suffix == ".py":
            check_builder(path.read_bytes(), function, name, is_step=is_step, is_sized=is_sized)
    return importlib.import_module(name)


def _call(function: Callable[[], object], what: str) -> object:
    try:
        return function()
    except (ProgramError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserCodeFailed(f"{what} raised {describe(error)}") from error


def describe(error: BaseException) -> str:
    """Return an exception with the last line of the user's own code on its way: `ValueError: no (train.py:12)`."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped with Ctrl-C"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    path = traceback.extract_tb(error.__traceback__)
    frames = [f for f in path if not (is_ours(f.filename) or f.filename.startswith("<frozen"))]
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES)] or frames
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{' '.join(text.split())[:500]}{place}"


def _refuse_arguments(function: Callable[..., object], what: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a callable written in C may have no signature; calling it will show
    needed = [
        p.name
        for p in signature.parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise needs_arguments(what, needed)


def _refuse_no_size(function: Callable[..., object], what: str, *, is_step: bool) -> None:
    """Raise for a function that cannot be called with a size alone."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return  # a callable written in C may have no signature; calling it will show
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = [p for p in parameters if p.kind in positional]
    if not takes and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise takes_no_size(what, is_step=is_step)
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p not in takes[:1]
    ]
    if needed:
        raise needs_more_than_size(what, needed)


def shown_type(value: object) -> str:
    """Return a value and its type for a message."""
    if value is None:
        return "None"
    text = f"{value!r:.60}" if isinstance(value, str | bytes | int | float | Path) else ""
    return f"{_article(value)}: {text}" if text else _article(value)


def _article(value: object) -> str:
    return "nothing" if value is None else with_article(type(value).__name__)
