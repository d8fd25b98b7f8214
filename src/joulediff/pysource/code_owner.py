"""Which code is joulediff's own, and which is a program's."""

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
    """Return how a file of a case that comes with this package is called, wherever that is installed; else None."""
    return os.path.join("cases", file.removeprefix(_CASES)) if file.startswith(_CASES) else None  # noqa: PTH118
