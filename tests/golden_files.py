"""Golden files in `tests/golden`: compare a report with the stored one, and list recordings to test.

`pytest --golden` writes the reports anew; read the difference before you commit it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import paths


def check_golden(name: str, text: str, config: pytest.Config) -> None:
    """Assert that `text` equals the golden file `name` exactly; `--golden` writes the file first."""
    path = paths.GOLDEN / name
    if config.getoption("--golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def find_golden(pattern: str) -> list[Path]:
    """Return the golden files that match a pattern, sorted. Never empty: a test over no files would pass."""
    found = sorted(paths.GOLDEN.glob(pattern))
    assert found, f"no golden file matches {pattern}"
    return found
