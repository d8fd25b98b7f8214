"""Recordings of the pairs on an H200: the findings of a diff, without a device or the programs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import joulediff as jd
import paths
from golden_files import find_golden
from joulediff.archive.reader import load
from joulediff.diagnosis.compare import diagnose
from joulediff.model.diff import Diff
from joulediff.report.json.diff import diff_from_json
from pairs.common import marked_line

FOLDER = paths.GOLDEN / "pairs"
NAMES = sorted(path.stem.removesuffix("-a") for path in find_golden("pairs/*-a.jd"))


def compare(name: str, a: str = "a", b: str = "b") -> Diff:
    return diagnose(load(FOLDER / f"{name}-{a}.jd"), load(FOLDER / f"{name}-{b}.jd"))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_finding_names_the_cause(name: str) -> None:
    module = importlib.import_module(f"pairs.{name}")
    diff = compare(name)
    first = diff.findings[0]
    assert first.expensive == "a"
    assert first.verdict == "waste"
    assert not first.proof.confirmed
    assert first.cause.not_tried is not None or first.kind == "host"
    if module.EXPECTED.type == "setting":  # without the programs no setting can be tried
        assert (first.kind, first.cause.key) == ("unknown", None)
        (also,) = diff.also_differs
        key, place = also.name, also.location_a
        assert "also differs" in first.suggestion and key not in first.suggestion
    else:
        assert (first.kind, first.cause.type) == (module.EXPECTED.kind, module.EXPECTED.type)
        key, place = str(first.cause.key).removeprefix("config."), first.cause.location_a
        assert place is not None and str(place.line) in first.suggestion
    assert key == module.EXPECTED.key
    assert place is not None
    assert (Path(place.file).name, place.line) == (f"{name}.py", marked_line(str(module.__file__)))


@pytest.mark.parametrize("name", NAMES)
def test_the_other_way_round_the_same_is_found_on_the_other_side(name: str) -> None:
    there, back = compare(name), compare(name, "b", "a")
    assert [f.expensive for f in back.findings] == ["b" if f.expensive == "a" else "a" for f in there.findings]
    assert [f.cause.key for f in back.findings] == [f.cause.key for f in there.findings]
    assert [f.cost.delta_j for f in back.findings] == pytest.approx([f.cost.delta_j for f in there.findings])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_recording_differs_in_nothing_from_itself(name: str, side: str) -> None:
    diff = compare(name, side, side)
    assert diff.findings == ()
    assert diff.same_work


def test_from_python(tmp_path: Path) -> None:
    a, b = (FOLDER / f"tf32-{side}.jd" for side in ("a", "b"))
    found = jd.diff(jd.load(a), b, threshold=0.1)
    assert isinstance(found, jd.Diff) and isinstance(found.findings[0], jd.Finding)
    assert found.thresholds.threshold == 0.1
    text = jd.render(found, "markdown", tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == text
    with pytest.raises(jd.JoulediffError, match="there is no report 'magic'"):
        jd.render(found, "magic")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["terminal", "json", "markdown"])
def test_the_diff_in_the_examples_is_rendered_without_its_recordings(form: Any) -> None:
    saved = paths.ROOT / "examples" / "h200" / "diff.json"
    diff = diff_from_json(saved.read_bytes())
    assert diff.findings[0].proof.confirmed
    assert "gelu_pytorch_tanh" in jd.render(diff, form)


def test_at_least_ten_pairs_are_kept() -> None:
    assert len(NAMES) >= 10
