"""The repository says which commit last passed the tests of a real GPU."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest

import gpu_runs


def check(place: Path) -> None:
    found = json.loads(place.read_text())
    assert date.fromisoformat(found["date"])
    assert re.fullmatch("[0-9a-f]{40}", found["commit"]), "a commit, without changes of its own"
    assert found["passed"] > 0
    assert all(found[name] for name in ("card", "driver", "python", "torch"))


def test_the_last_run_on_a_gpu_is_complete() -> None:
    check(gpu_runs.LAST_PASSED)


def test_a_run_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_runs, "read_card", lambda: ("A card", "1.0"))
    gpu_runs.write(tmp_path / "passed.json", "0" * 40, 3)
    check(tmp_path / "passed.json")
