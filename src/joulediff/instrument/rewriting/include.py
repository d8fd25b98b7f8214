"""Import modules of the program rewritten, those that `--include` names.

Such a module is compiled from its source each time, and no `.pyc` file is read or written for it.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from joulediff.instrument.rewriting.rewrite import compile_rewritten
from joulediff.instrument.rewriting.sites import Watcher


@contextmanager
def included(watcher: Watcher, patterns: Sequence[str], root: Path) -> Iterator[None]:
    """Rewrite modules that are imported meanwhile and match a pattern: of a module's name, or of a path below `root`.

    `models` includes the package with all its modules, `models.*` only those in it, `lib/*.py` files.
    """
    if not patterns:
        yield
        return
    finder = _Finder(watcher, tuple(patterns), root.resolve())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


class _Finder:
    def __init__(self, watcher: Watcher, patterns: tuple[str, ...], root: Path) -> None:
        self._watcher = watcher
        self._patterns = patterns
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        # Another loader may do more than read a file: it is left alone.
        if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None:
            return None
        if not self._is_included(fullname, Path(spec.origin)):
            return None
        spec.loader = _Loader(fullname, spec.origin, self._watcher)
        spec.cached = None
        return spec

    def _is_included(self, name: str, path: Path) -> bool:
        resolved = path.resolve()
        inside = resolved.relative_to(self._root).as_posix() if resolved.is_relative_to(self._root) else None
        for pattern in self._patterns:
            if name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern):
                return True
            if fnmatch.fnmatchcase(resolved.as_posix(), pattern):
                return True
            if inside is not None and (fnmatch.fnmatchcase(inside, pattern) or inside.startswith(f"{pattern}/")):
                return True
        return False


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, watcher: Watcher) -> None:
        super().__init__(fullname, path)
        self._watcher = watcher

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        return compile_rewritten(data, str(path), self._watcher)
