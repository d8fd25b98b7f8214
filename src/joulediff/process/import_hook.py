"""Makes joulediff importable in another Python, and nothing else of the environment joulediff is installed in.

This file is run by its path, before `joulediff` can be imported, so it uses the standard library only. It adds nothing
to `sys.path` or to the environment: the program and the processes it starts see their own packages. Imports of
joulediff work even if the program empties `sys.path`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class PackageFinder:
    """Finds the given packages, each in its own folders."""

    def __init__(self, folders: Mapping[str, Sequence[str]]) -> None:
        self._folders = folders

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the place of a package; Python finds its modules through the package itself."""
        folders = self._folders.get(fullname)
        return None if folders is None else PathFinder.find_spec(fullname, folders)


def install(packages: str) -> None:
    """Make packages importable; `packages` is JSON with the folders of each.

    Those under `first` come before packages of this environment, those under `fallback` after them.
    """
    folders = json.loads(packages)
    library = str(Path(json.__file__).parents[1])
    standard = [library, *(entry for entry in sys.path if entry.endswith("lib-dynload"))]
    sys.meta_path.insert(0, PackageFinder(folders["first"]))
    sys.meta_path.append(PackageFinder({**dict.fromkeys(sys.stdlib_module_names, standard), **folders["fallback"]}))
