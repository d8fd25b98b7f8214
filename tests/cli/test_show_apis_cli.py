"""`joulediff show` of a script's API calls, and the commands that need the step of a program instead."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import joulediff as jd
from api_run_builders import make_api_run
from archive_runs import small_run
from joulediff.archive.writer import save
from joulediff.cli import main
from joulediff.report.notebook import to_html
from joulediff.report.render import render


@dataclass(frozen=True)
class Called:
    """How a command ended, and what it printed and reported."""

    exit_code: int
    output: str
    errors: str


def call(*words: str) -> Called:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(words)
    return Called(int(ended.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    save(make_api_run(), tmp_path / "calls.jd")
    return str(tmp_path / "calls.jd")


@pytest.fixture
def step(tmp_path: Path) -> str:
    save(small_run(), tmp_path / "step.jd")
    return str(tmp_path / "step.jd")


def test_it_is_shown_on_the_terminal(recorded: str) -> None:
    found = call("show", recorded)
    assert found.exit_code == 0
    assert found.output.startswith("train.py  1,815 J")
    assert "torch.Tensor.backward" in found.output
    assert call("show", recorded, "--top", "2").output.count("torch.") < found.output.count("torch.")
    assert call("show", recorded, "--top", "2", "--all").output == found.output


def test_json_and_markdown_are_written(recorded: str, tmp_path: Path) -> None:
    found = call("show", recorded, "--json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "a.md"))
    assert found.exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["schema"] == "joulediff.apis/1"
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == render(make_api_run(), "markdown", top=15)
    assert json.loads(call("show", recorded, "--json", "-").output)["label"] == "train.py"
    assert call("show", recorded, "--markdown", "-").output.startswith("### <code>train.py</code>")


def test_a_step_is_written_as_markdown_too(step: str, tmp_path: Path) -> None:
    assert call("show", step, "--markdown", str(tmp_path / "a.md")).exit_code == 0
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == render(small_run(), "markdown")
    assert len(call("show", step, "--all").output) >= len(call("show", step, "--top", "1").output)


def test_strict_asks_whether_the_energy_is_trustworthy(recorded: str, tmp_path: Path) -> None:
    assert call("show", recorded, "--strict").exit_code == 0
    save(replace(make_api_run(), trustworthy=False), tmp_path / "noisy.jd")
    assert call("show", str(tmp_path / "noisy.jd"), "--strict").exit_code == 2


@pytest.mark.parametrize(("words", "named"), [(["--by", "line"], "--by"), (["--times", "10"], "--times")])
def test_options_of_a_step_are_refused(recorded: str, words: list[str], named: str) -> None:
    found = call("show", recorded, *words)
    assert found.exit_code == 1
    assert f"{named} cannot be used for" in found.errors
    assert f"  joulediff show {recorded}" in found.errors


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_the_recording_is_not_replaced(recorded: str, option: str) -> None:
    before = Path(recorded).read_bytes()
    found = call("show", recorded, option, recorded)
    assert found.exit_code == 1
    assert f"choose another file for {option}" in found.errors
    assert Path(recorded).read_bytes() == before


def test_commands_that_need_a_step_say_so(recorded: str, step: str) -> None:
    found = call("match", recorded, step)
    assert found.exit_code == 1
    assert "has the API calls of a script, and no step of a program" in found.errors


def test_it_is_loaded_and_shown_from_python(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = jd.load(recorded)
    assert run == make_api_run()
    jd.show(recorded, top=2)
    assert "train.py  1,815 J" in capsys.readouterr().out
    page = run._repr_html_()
    assert page == to_html(run)
    assert page is not None
    assert "torch.Tensor.backward" in page
    hostile = replace(make_api_run(), label="<script>alert(1)</script>")
    assert "<script>" not in to_html(hostile)
