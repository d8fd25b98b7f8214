"""Other people's tests give the same results rewritten as plain. `benchmarks/corpus.py` runs many more of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT, TESTS

LIMIT_S = 60
# Fast files about the parts of the language that calls stand in, and one file of a package.
CORPUS = (
    "test_grammar", "test_generators", "test_class", "test_with", "test_super", "test_scope", "test_functools",
    "test_keywordonlyarg", "test_patma", "test_decorators", "test_contextlib", "test_dataclasses",
    "test_fstring", "test_named_expressions", "test_iter", "test_raise", "test_yield_from",
    "networkx/utils/tests/test_misc.py",
)  # fmt: skip


def run(name: str, mode: str, folder: Path) -> Any:
    out = folder / f"{mode}.json"
    kind = "stdlib" if name.startswith("test_") else "pytest"
    command = [sys.executable, str(TESTS / "corpus_runner.py"), kind, name, mode, str(out), str(LIMIT_S)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=LIMIT_S + 30,
        check=False, cwd=folder,
    )  # fmt: skip
    assert out.exists(), done.stderr[-2000:] + done.stdout[-2000:]
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.live
@pytest.mark.parametrize("name", CORPUS)
def test_the_outcomes_are_the_same(name: str, tmp_path: Path) -> None:
    if name.startswith("test_") and (find_spec("test") is None or find_spec(f"test.{name}") is None):
        pytest.skip("this Python is installed without the tests of the standard library")
    if not name.startswith("test_") and find_spec(name.partition("/")[0]) is None:
        pytest.skip(f"{name.partition('/')[0]} is not installed")
    plain = run(name, "plain", tmp_path)
    assert len(plain["outcomes"]) > 1
    for mode in ("unwatched", "every"):
        rewritten = run(name, mode, tmp_path)
        assert rewritten["outcomes"] == plain["outcomes"], rewritten["errors"]
        assert rewritten["open"] == []
        assert (rewritten["begun"] > 0) == (mode == "every")
