"""`joulediff render` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import paths
from diff_builders import gpt2_diff, mixed_diff
from joulediff.cli import cli
from joulediff.model.errors import JoulediffError
from joulediff.report.json.diff import diff_from_json, diff_to_json
from joulediff.report.render import render

RECORDING = paths.GOLDEN / "match" / "gpt2_eager.jd"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "diff.json"
    path.write_text(diff_to_json(gpt2_diff()), encoding="utf-8")
    return path


def call(*words: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["render", *map(str, words)], input=stdin)


def refusal(*words: object) -> JoulediffError:
    found = call(*words)
    assert isinstance(found.exception, JoulediffError)
    return found.exception


def test_to_the_terminal(saved: Path) -> None:
    found = call(saved)
    assert found.exit_code == 0
    assert found.stdout == render(gpt2_diff(), "terminal", width=120)


@pytest.mark.parametrize(
    ("name", "form"), [("r.md", "markdown"), ("r.MD", "markdown"), ("r.txt", "terminal"), ("r.json", "json")]
)
def test_the_suffix_says_which_report(saved: Path, tmp_path: Path, name: str, form: str) -> None:
    assert call(saved, "-o", tmp_path / name).exit_code == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == render(gpt2_diff(), form)  # type: ignore[arg-type]


def test_the_format_can_be_said(saved: Path, tmp_path: Path) -> None:
    assert call(saved, "--format", "markdown").stdout.startswith("### A uses 1.24x")
    assert json.loads(call(saved, "--format", "json", "-o", "-").stdout)["schema"] == "joulediff.diff/2"
    assert call(saved, "--format", "markdown", "-o", tmp_path / "notes").exit_code == 0
    assert (tmp_path / "notes").read_text(encoding="utf-8").startswith("###")


def test_how_much_is_shown(saved: Path) -> None:
    assert "allow_tf32" not in call(saved, "--top", "1").stdout
    assert "native_layer_norm" in call(saved, "--all").stdout


def test_json_of_json_is_the_same(tmp_path: Path, saved: Path) -> None:
    call(saved, "-o", tmp_path / "again.json", "--top", "1")
    assert (tmp_path / "again.json").read_bytes() == saved.read_bytes()
    assert diff_from_json(saved.read_bytes()) == gpt2_diff()


def test_from_a_pipe() -> None:
    assert "resnet" in call("-", stdin=diff_to_json(mixed_diff()).encode()).stdout


def test_what_cannot_be_read(tmp_path: Path, saved: Path) -> None:
    assert refusal(tmp_path / "none.json").what.endswith("none.json (No such file or directory)")
    assert "Is a directory" in refusal(tmp_path).what
    recording = refusal(RECORDING)
    assert "it is a recording, no diff" in recording.what
    assert recording.fix == f"joulediff show {RECORDING}"
    saved.write_text(saved.read_text(encoding="utf-8").replace('"comparable": true', '"comparable": 7'))
    assert refusal(saved).what == f"cannot read {saved}: diff.comparable may not be the int 7"


def test_nothing_is_lost(tmp_path: Path, saved: Path) -> None:
    before = saved.read_bytes()
    assert "it is the diff to render" in refusal(saved, "-o", saved).what
    linked = tmp_path / "linked.json"
    linked.symlink_to(saved)
    assert "it is the diff to render" in refusal(saved, "-o", linked).what
    assert saved.read_bytes() == before
    copy = tmp_path / "run.jd"
    copy.write_bytes(RECORDING.read_bytes())
    error = refusal(saved, "-o", copy, "--format", "markdown")
    assert "it is a recording" in error.what and error.fix == "choose another file for -o"
    assert copy.read_bytes() == RECORDING.read_bytes()


def test_what_cannot_be_written(tmp_path: Path, saved: Path) -> None:
    assert "names no report" in refusal(saved, "-o", tmp_path / "report.pdf").what
    assert "its folder does not exist" in refusal(saved, "-o", tmp_path / "no" / "r.md").what
    assert "it is a folder" in refusal(saved, "-o", tmp_path, "--format", "json").what
