"""Tells code of this package from code of programs."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_OURS = str(_PACKAGE) + os.sep
_CASES = str(_PACKAGE / "cases" / "library") + os.sep


def is_ours(file: str) -> bool:
    """Return whether a file is code of this package; a case in it is a program like any other."""
    return file.startswith(_OURS) and not file.startswith(_CASES)


def name_case_file(file: str) -> str | None:
    """Return the name of a case's file, independent of where the package is installed; None for any other file."""
    return os.path.join("cases", file.removeprefix(_CASES)) if file.startswith(_CASES) else None  # noqa: PTH118
