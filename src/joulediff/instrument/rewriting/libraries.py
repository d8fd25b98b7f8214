"""The libraries that are watched where the user names none, and the packages that each one consists of."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from joulediff.frameworks.framework import frameworks

# Libraries without a folder in `frameworks`.
_OTHERS = ("transformers", "diffusers", "sklearn", "numpy")


def default_libraries() -> tuple[str, ...]:
    """Return the libraries that are watched if a program imports them."""
    return (*_described(), *_OTHERS)


def packages_of(libraries: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return libraries with the packages that their public names come from."""
    described = _described()
    return {name: described.get(name, (name,)) for name in libraries}


def imported_libraries(source: str | bytes) -> tuple[str, ...]:
    """Return the default libraries that a file imports anywhere; none if it cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module.partition(".")[0])
    return tuple(name for name in default_libraries() if name in found)


def _described() -> Mapping[str, tuple[str, ...]]:
    return {name: packages for each in frameworks() for name, packages in each.apis.items()}
