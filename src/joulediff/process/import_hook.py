"""Lets another Python find joulediff, and nothing else of the environment joulediff is installed in.

This file is run by its path, before `joulediff` can be imported: standard library only. Nothing is
added to `sys.path` or to the environment, so the program and the processes it starts see their own packages.
A program may leave nothing of `sys.path`; what joulediff imports later is found all the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class PackageFinder:
    """Finds the packages it was given, each in its own folders."""

    def __init__(self, folders: Mapping[str, Sequence[str]]) -> None:
        self._folders = folders

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return where a package is; its modules are found through the package itself."""
        folders = self._folders.get(fullname)
        return None if folders is None else PathFinder.find_spec(fullname, folders)


def install(packages: str) -> None:
    """Offer the packages in `packages`: `first` before those of this environment, `fallback` where it has none."""
    folders = json.loads(packages)
    library = str(Path(json.__file__).parents[1])
    standard = [library, *(entry for entry in sys.path if entry.endswith("lib-dynload"))]
    sys.meta_path.insert(0, PackageFinder(folders["first"]))
    sys.meta_path.append(PackageFinder({**dict.fromkeys(sys.stdlib_module_names, standard), **folders["fallback"]}))
