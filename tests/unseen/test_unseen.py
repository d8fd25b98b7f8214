"""The pairs of tests/unseen are well formed: expectations, programs, outputs; three quick ones run in the benchmark.

Whether the findings are right is measured by `benchmarks/unseen.py`, never by a test: the diagnosis must not be
developed on these pairs.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import paths

FOLDER = Path(__file__).resolve().parent
FOLDERS = {path.parent.name: path.parent for path in sorted(FOLDER.glob("*/wasteful.py"))}
# Sums in another order: the largest difference of a pair is 2e-6 of the output.
TOLERANCE = 1e-4
QUICK = ("lstsq-svd-driver",)


def load_benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("unseen", paths.ROOT / "benchmarks" / "unseen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


unseen = load_benchmark()
each_pair = pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)


def digests_of_first_run() -> dict[str, str]:
    """`cd tests/unseen; sha256sum */*.py */expect.toml` wrote the file where the first run was made."""
    lines = (FOLDER / "results" / "first-run.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def test_the_pairs_are_as_they_were_at_their_first_run() -> None:
    files = sorted(path for folder in FOLDERS.values() for path in (*folder.glob("*.py"), folder / unseen.FILE))
    now = {f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert now == digests_of_first_run(), "a pair is never changed after its first run"


@each_pair
def test_the_expected_finding_has_every_entry(folder: Path) -> None:
    expected = unseen.read_expected(folder / unseen.FILE)
    for name in ("title", "source", "keys", "lines"):
        assert getattr(expected, name), name
    assert expected.source.startswith("https://")
    assert "unknown" not in expected.kinds
    assert isinstance(expected.confirmable, bool)


@each_pair
def test_the_expected_lines_are_lines_of_the_wasteful_program(folder: Path) -> None:
    program = {line.strip() for line in (folder / "wasteful.py").read_text(encoding="utf-8").splitlines()}
    assert [line for line in unseen.read_expected(folder / unseen.FILE).lines if line not in program] == []


@each_pair
@pytest.mark.parametrize("name", ["wasteful.py", "lean.py"])
def test_both_programs_define_a_builder(folder: Path, name: str) -> None:
    tree = ast.parse((folder / name).read_text(encoding="utf-8"))
    (build,) = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "build"]
    arguments = build.args
    assert len(arguments.args) + len(arguments.posonlyargs) == len(arguments.defaults), "it is called without arguments"


@pytest.mark.parametrize(
    ("entry", "value", "told"),
    [
        ("class", '"magic"', "class may not be"),
        ("kinds", '["wrong"]', "kinds may not be"),
        ("devices", "[]", "devices may not be"),
        ("colour", '"red"', "missing or unknown: colour"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, entry: str, value: str, told: str) -> None:
    text = (FOLDERS[QUICK[0]] / unseen.FILE).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith(f"{entry} =")]
    (tmp_path / unseen.FILE).write_text("\n".join([*lines, f"{entry} = {value}"]))
    with pytest.raises(ValueError, match=told):
        unseen.read_expected(tmp_path / unseen.FILE)


def record(pair: str = "x", *, mode: str = "pair", right: bool = True, **changes: Any) -> Any:
    facts: dict[str, Any] = {
        **dict.fromkeys(unseen.Record.__dataclass_fields__, ""),
        "pair": pair,
        "mode": mode,
        "outcome": "found" if right else "partly",
        "ratio": (2.0, 1.9, 2.1),
        "told": (),
        "proof": "cause confirmed",
        "kind_right": right,
        "key_right": right,
        "line_right": right,
        "same_work_counts": False,
        "seconds": 30.0,
        "timings": {},
    }
    return unseen.Record(**{**facts, **changes})


def told(proof: str, *, accepted: bool, expensive: str = "a") -> Any:
    return unseen.Told("redundant", "key", "line", proof, expensive, accepted)


def test_the_score_counts_first_findings_and_false_confirmations() -> None:
    records = [
        record("a", told=(told("cause confirmed", accepted=True),)),
        record("b", proof="replacement confirmed"),
        record("c", key_right=False, told=(told("replacement confirmed", accepted=False),)),
        record("d", line_right=False, told=(told("observed", accepted=False),)),
        record("e", right=False, outcome="failed"),
        record("f", outcome="not run"),
        record("g", mode="lean", right=False, outcome="clean"),
    ]
    assert unseen.score(records) == unseen.Score(ran=5, right=2, cause_confirmed=1, false_confirmed=1, failed=1)
    text = unseen.score_text(records)
    assert "2 of 5 right at the first finding (40 %), 1 of these with the cause itself confirmed (50 %)" in text
    assert "1 programs compared with themselves: 0 with a finding" in text


def test_the_last_record_of_a_pair_counts(tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    written = [record("a", right=False), record("b"), record("a"), record("a", mode="lean", same_work_counts=True)]
    file.write_text("".join(json.dumps(unseen.asdict(each)) + "\n" for each in written))
    assert unseen.read_records(file) == [written[2], written[1], written[3]]
    assert unseen.read_records(tmp_path / "none.json") == []


@pytest.mark.live
def test_both_programs_build_on_the_cpu_and_return_the_same() -> None:
    """Pairs of the first run are held by digests, so a sixth of them is built; pair_outputs.py builds any of them."""
    known = {path.parent.name for path in map(Path, digests_of_first_run())}
    chosen = [name for at, name in enumerate(FOLDERS) if at % 6 == 0 or name not in known]
    command = [sys.executable, str(FOLDER / "pair_outputs.py"), *chosen]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = {each["pair"]: each for each in map(json.loads, ended.stdout.splitlines())}
    assert list(found) == chosen
    assert [(name, each["errors"]) for name, each in found.items() if each["errors"]] == []
    assert {name: each["difference"] for name, each in found.items() if not each["difference"] < TOLERANCE} == {}


@pytest.mark.live
def test_quick_pairs_run_to_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file = tmp_path / "records.json"
    words = ["--device", "cpu", "--only", ",".join(QUICK), "--store", str(file), "--keep", str(tmp_path / "kept")]
    unseen.main([*words, "--seconds", "0.5", "--replay-seconds", "2", "--wait", "0"])
    records = unseen.read_records(file)
    assert [each.pair for each in records] == list(QUICK)
    assert [each.note for each in records if each.outcome == "failed"] == []
    assert all(each.ratio is not None and each.timings for each in records)
