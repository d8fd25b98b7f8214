"""The arguments of PyTorch's operators by name, read from the list of operators that PyTorch installs.

A recording has arguments by position. The list is text, so torch is not imported: recordings are compared in a process
that has no framework. Without an installed list no name is known.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

from joulediff.frameworks.framework import SchemaArgument
from joulediff.model.run import Setting

_PACKAGE = "torchgen"
_LIST = Path("packaged/ATen/native/native_functions.yaml")
_NAMESPACE = "aten::"
# `- func: sum.dim_IntList(Tensor self, int[1]? dim, *, ScalarType? dtype=None) -> Tensor`
_SCHEMA = re.compile(r"^- func: (\w+)(?:\.(\w+))?\((.*?)\) -> ", re.MULTILINE)
# A comma between two arguments; those within brackets belong to a default: `int[2] stride=[1, 1]`.
_BETWEEN = re.compile(r",\s*(?![^\[(]*[\])])")
_WORDS: dict[str, Setting] = {"True": True, "False": False, "None": None}


def read_schema(name: str, overload: str) -> tuple[SchemaArgument, ...] | None:
    """Return the arguments of an operator in order; None if they are not known."""
    own = "" if overload == "default" else overload
    text = _schemas().get((name.removeprefix(_NAMESPACE), own)) if name.startswith(_NAMESPACE) else None
    if text is None:
        return None
    parts = [part.strip() for part in _BETWEEN.split(text)]
    return tuple(_argument(part) for part in parts if part and part != "*")


def _argument(text: str) -> SchemaArgument:
    declared, given, default = text.partition("=")
    return SchemaArgument(declared.split()[-1], _value(default) if given else None)


def _value(text: str) -> Setting:
    if text in _WORDS:
        return _WORDS[text]
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return found if isinstance(found, int | float | str) else text


@cache
def _schemas() -> dict[tuple[str, str], str]:
    try:
        found = importlib.util.find_spec(_PACKAGE)
    except (ImportError, ValueError):
        return {}
    for folder in [] if found is None else found.submodule_search_locations or []:
        path = Path(folder) / _LIST
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            return {(name, overload): arguments for name, overload, arguments in _SCHEMA.findall(text)}
    return {}
