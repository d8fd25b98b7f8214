"""Runs a file or a module as `__main__`, as `python FILE.py` and `python -m MODULE` do.

The file may be compiled in another way, such as with its source rewritten. Its exceptions pass through, SystemExit too.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from joulediff.model.errors import ProgramError

Compile = Callable[[bytes, str], CodeType]
"""Returns the code of a file, given its content and its name."""

# Modules that were `__main__` before. Their functions still run, and need their globals.
_replaced: list[ModuleType | None] = []


def run_as_main(
    path: str | Path,
    arguments: Sequence[str] = (),
    *,
    compile: Compile | None = None,  # noqa: A002
    names: Mapping[str, object] | None = None,
    spec: ModuleSpec | None = None,
) -> ModuleType:
    """Run a file as `__main__` and return its module, which has `names` from the begin.

    With `spec`, that `find_module` returned, it runs as a module: its package is imported first.

    `sys.argv`, `sys.path[0]` and the module stay as they are afterwards: threads and exit handlers of the program may
    need them.
    """
    content = _read(Path(path))
    file = str(Path(path).absolute())  # as Python names the file that it runs, whatever the program does to the folder
    code = (compile or compile_plain)(content, file)
    module = ModuleType("__main__")
    module.__file__ = file
    module.__loader__ = SourceFileLoader("__main__", file)
    vars(module).update(__builtins__=builtins, __cached__=None, **(names or {}))
    if spec is not None:
        vars(module).update(__spec__=spec, __package__=spec.parent, __loader__=spec.loader, __cached__=spec.cached)
    sys.argv[:] = [str(path), *arguments]
    if not getattr(sys.flags, "safe_path", False):  # from Python 3.11
        sys.path.insert(0, str(Path(path).resolve().parent) if spec is None else str(Path.cwd()))
    if spec is not None and spec.parent:
        importlib.import_module(spec.parent)
    _replaced.append(sys.modules.get("__main__"))
    sys.modules["__main__"] = module
    exec(code, vars(module))  # noqa: S102 - it is the user's own program
    return module


def find_module(name: str) -> ModuleSpec:
    """Return where the source of a module is, or of the `__main__` of a package. Imports nothing."""
    path: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    spec = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = None if path is None else PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            raise ProgramError(f"there is no module {name}", fix="name it as for python -m, in the same folder")
        path = spec.submodule_search_locations
    if spec is not None and path is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", path)
        if spec is None:
            raise ProgramError(f"{name} is a package without __main__.py", fix=f"name a module in it: {name}.MODULE")
    if spec is None or type(spec.loader) is not SourceFileLoader:
        raise ProgramError(f"the module {name} has no source file", fix="name a module that is a .py file")
    return spec


def compile_plain(content: bytes, file: str) -> CodeType:
    """Return the code of a file as Python compiles it."""
    return compile(content, file, "exec", dont_inherit=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise ProgramError(f"cannot run {path}: {why}", fix="give the path of a Python file") from error
