"""Files that no test runs here, for a GPU or for a benchmark, import names that the package has."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import paths

FILES = sorted(
    path for folder in ("tests/gpu", "benchmarks", "examples") for path in (paths.ROOT / folder).glob("*.py")
)


def imports_of(path: Path) -> set[tuple[str, str]]:
    """Return the modules of the package that a file imports from, with the names it takes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "joulediff":
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "joulediff"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_dotted_name(node.value):
            module, _, name = node.value.rpartition(".")
            found.add((module, name))
    return found


def is_dotted_name(text: str) -> bool:
    """Say whether a string names something in the package, as the target of `monkeypatch.setattr` does."""
    return text.startswith("joulediff.") and all(word.isidentifier() for word in text.split("."))


def resolves(module: str, name: str) -> bool:
    """Say whether `module` has `name`: a module of its own, a name in it, or a name in a class of it."""
    try:
        importlib.import_module(f"{module}.{name}" if name else module)
    except ModuleNotFoundError:
        try:
            return hasattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            outer, _, inner = module.rpartition(".")
            return bool(outer) and hasattr(getattr(importlib.import_module(outer), inner, None), name)
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(paths.ROOT).as_posix())
def test_imported_names_exist(path: Path) -> None:
    missing = [f"{module}.{name}" for module, name in sorted(imports_of(path)) if not resolves(module, name)]
    assert missing == []


def test_imports_are_found() -> None:
    assert sum(len(imports_of(path)) for path in FILES) > len(FILES)
    assert resolves("joulediff.model.energy", "Energy")
    assert resolves("joulediff.model", "energy")
    assert not resolves("joulediff.model.energy", "Joules")
