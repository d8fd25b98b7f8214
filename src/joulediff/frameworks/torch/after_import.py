"""Call a function when the program imports a module, so that the module is not imported for its sake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Change = Callable[[ModuleType], None]


def call_after_import(name: str, change: Change) -> None:
    """Call `change` with a module now, or as soon as the program imports it; a second request changes nothing."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    elif not any(isinstance(each, ImportedFinder) and each.is_for(name, change) for each in sys.meta_path):
        sys.meta_path.insert(0, ImportedFinder(name, change))


def forget_import(name: str, change: Change) -> None:
    """Withdraw a request for a module that was not imported yet."""
    for each in [finder for finder in sys.meta_path if isinstance(finder, ImportedFinder)]:
        if each.is_for(name, change):
            sys.meta_path.remove(each)


class ImportedFinder:
    """Finds one module where Python finds it, and nothing else."""

    def __init__(self, name: str, change: Change) -> None:
        self._name = name
        self._change = change

    def is_for(self, name: str, change: Change) -> bool:
        return (self._name, self._change) == (name, change)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def run(module: ModuleType) -> None:
                execute(module)
                self._change(module)

            spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec
