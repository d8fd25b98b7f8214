"""Each test has the marker of what it needs, and a run of unit tests forbids the rest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import markers
import paths

HELPERS = """
import os
import subprocess
from more import deeper

LIMIT = 3

def start():
    return subprocess.run(["true"])

def outer():
    return start()

def add(a, b):
    return a + b + LIMIT
"""
TESTS = """
import helpers
import pytest
from helpers import add, outer

@pytest.fixture
def started():
    return outer()

@pytest.mark.parametrize("x", [1])
def test_plain(x):
    assert add(x, 1) == helpers.LIMIT

def test_fixture(started):
    assert started

def test_attribute():
    helpers.start()

def test_forks():
    import os
    os.fork()

def test_lazy():
    torch = pytest.importorskip("torch")

def test_lazy_import():
    from torch.nn import functional

class TestBoth:
    def test_both(self):
        helpers.start()
        import jax
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(markers, "TESTS", tmp_path)
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "more.py").write_text("deeper = 1")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


@pytest.mark.unit
@pytest.mark.parametrize(
    ("test", "needs"),
    [
        ("test_plain", {"unit"}),
        ("test_fixture", {"live"}),
        ("test_attribute", {"live"}),
        ("test_forks", {"live"}),
        ("test_lazy", {"torch"}),
        ("test_lazy_import", {"torch"}),
        ("TestBoth", {"torch", "live"}),
    ],
)
def test_a_test_is_marked_by_what_it_reaches(folder: Path, test: str, needs: set[str]) -> None:
    assert markers.needs_of_test(folder / "test_it.py", test) == needs
    assert not markers.loads_a_framework(folder / "test_it.py")


@pytest.mark.unit
@pytest.mark.parametrize("text", ["import torch.nn", "from jax import numpy", "x = pytest.importorskip('torch')"])
def test_a_framework_that_a_helper_loads_marks_every_test(folder: Path, text: str) -> None:
    (folder / "more.py").write_text(text)
    markers.read.cache_clear()
    assert markers.loads_a_framework(folder / "test_it.py")
    assert markers.needs_of_test(folder / "test_it.py", "test_plain") == {"torch"}


@pytest.mark.unit
def test_an_automatic_fixture_counts_for_every_test(folder: Path) -> None:
    text = TESTS.replace("@pytest.fixture", "@pytest.fixture(autouse=True)")
    (folder / "test_other.py").write_text(text)
    assert markers.needs_of_test(folder / "test_other.py", "test_plain") == {"live"}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_unit_run_forbids_frameworks_and_processes(tmp_path: Path, workers: str) -> None:
    for name in ("conftest.py", "markers.py"):
        shutil.copy(paths.TESTS / name, tmp_path)
    (tmp_path / "test_loads.py").write_text("import torch\n\ndef test_never_collected():\n    assert False\n")
    (tmp_path / "test_hidden.py").write_text(
        "import os\nimport pytest\n"
        "def test_framework():\n    __import__('tor' + 'ch')\n"
        "def test_process():\n    getattr(os, 'sys' + 'tem')('true')\n"
        "def test_good():\n    pass\n"
        "@pytest.mark.live\ndef test_marked():\n    assert False\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-m", "unit", "-n", workers, "-p", "no:cacheprovider", "."]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "a unit test imports torch" in done.stdout
    assert "a unit test starts a process (os.system)" in done.stdout
