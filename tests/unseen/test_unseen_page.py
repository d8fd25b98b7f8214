"""docs/make_unseen.py: the page of unseen pairs matches the stored results."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import paths

PAIRS = ("cdist-without-product", "lstsq-svd-driver")


def load_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_unseen", paths.ROOT / "docs" / "make_unseen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


maker = load_maker()


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert maker.main(["--check"]) == 0, f"run python docs/make_unseen.py: {capsys.readouterr().err}"


def test_every_result_is_that_of_a_pair() -> None:
    known = {pair.folder.name for pair in maker.unseen.find_pairs()}
    runs = maker.read_runs(paths.ROOT / maker.RESULTS)
    assert runs
    assert [(run.name, each.pair) for run in runs for each in run.records if each.pair not in known] == []


def line(pair: str, **changes: Any) -> str:
    facts: dict[str, Any] = {
        **dict.fromkeys(maker.unseen.Record.__dataclass_fields__, ""),
        **{"pair": pair, "mode": "pair", "outcome": "found", "ratio": [2.0, 1.9, 2.1], "told": []},
        **{"kind_right": True, "key_right": True, "line_right": True, "same_work_counts": False, "seconds": 30.0},
        **{"told_kind": "api_misuse", "told_key": "driver", "proof": "cause confirmed", "timings": {}},
        **{"machine": "a machine", "versions": "torch 2", "created": "2026-11-16T10:00:00+00:00", "commit": "abc"},
    }
    return json.dumps({**facts, **changes}) + "\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two pairs and two runs of them."""
    for name in PAIRS:
        shutil.copytree(paths.ROOT / "tests" / "unseen" / name, tmp_path / "tests" / "unseen" / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A\n{}\nold\n{}\nafter\n".format(*maker.MARKS))
    results = tmp_path / maker.RESULTS
    results.mkdir(parents=True)
    false = {"kind": "redundant", "key": "x", "line": None, "proof": "cause confirmed", "expensive": "a"}
    (results / "first-cpu.json").write_text(
        line(PAIRS[0], key_right=False, told=[{**false, "accepted": False}])
        + line(PAIRS[1], outcome="failed", kind_right=False)
    )
    alone = line(PAIRS[0], mode="lean", outcome="clean") + line(PAIRS[0], mode="lean", same_work_counts=True)
    (results / "final-h200.json").write_text(line(PAIRS[0]) + line(PAIRS[1], told_kind=None, kind_right=False) + alone)
    return tmp_path


def test_the_page_has_scores_and_pairs(project: Path) -> None:
    assert maker.main([], project) == 0
    assert maker.main(["--check"], project) == 0
    rows = [each for each in (project / maker.PAGE).read_text(encoding="utf-8").splitlines() if each.startswith("|")]
    first, final = (next(row for row in rows if row.startswith(f"| {name} run")) for name in ("first", "final"))
    assert "| 2 | 0 (0 %) | 0 (-) | 1 | 1 | - |" in first
    assert "| a machine, torch 2 | 2026-11-16 | `abc` |" in final
    assert "0 of 1 with a finding; 0 of 1 with a finding where the same work counts |" in final
    (pair,) = [row for row in rows if row.startswith(f"| [{PAIRS[0]}]")]
    assert pair.endswith("| ✗ api_misuse: `driver` (key), 1 false ✓ | ✓ cause confirmed |")
    (pair,) = [row for row in rows if row.startswith(f"| [{PAIRS[1]}]")]
    assert pair.endswith("| ✗ failed | ✗ no finding |")


def test_the_readme_has_the_scores_of_each_run(project: Path) -> None:
    maker.main([], project)
    text = " ".join((project / "README.md").read_text(encoding="utf-8").split())
    assert "in 1 set. At the first run of a set" in text
    assert "the first finding is right in 0 of 2 (0 of 2 in all, and 1 confirmed finding false). " in text
    assert "1 of 2 (50 %; final run, H200), the cause itself confirmed in 1, 0 confirmed findings false. " in text
    assert " old " not in text and text.endswith(" after")


def test_pairs_that_were_not_run_are_counted(project: Path) -> None:
    (project / maker.RESULTS / "final-h200.json").write_text(line(PAIRS[0], device="cpu"))
    maker.main([], project)
    assert "| 1, 1 not run yet | 1 (100 %) |" in (project / maker.PAGE).read_text(encoding="utf-8")
    assert ", 1 pair not run yet. " in " ".join((project / "README.md").read_text(encoding="utf-8").split())


def test_a_check_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert maker.main(["--check"], project) == 1
    assert "docs/unseen.md would change" in capsys.readouterr().err
    assert not (project / maker.PAGE).exists()
