"""`joulediff diff` of two recorded scripts, and `joulediff render` of what it saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from api_run_builders import make_api_run
from archive_runs import small_run
from joulediff.archive.writer import save
from joulediff.cli import main
from joulediff.model.apis.api_run import ApiRun
from joulediff.report.json.apis_diff import api_diff_from_json

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


def recorded(name: str, run: ApiRun) -> str:
    save(run, name)
    return name


def test_two_scripts_are_compared(call: Run) -> None:
    a, b = recorded("a.jd", make_api_run()), recorded("b.jd", make_api_run(scale=0.5))
    code, out, _ = call("diff", a, b, "--label-a", "old")
    assert code == 0
    assert out.startswith("A old  1,815 J")
    assert "A uses 1.50x the energy of B" in out
    assert "next: joulediff diff a.jd b.jd -o report.md" in out


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 2), (0.5, 0), (2.0, 3)])
def test_the_gate_has_an_exit_code(call: Run, scale: float, expected: int) -> None:
    a, b = recorded("a.jd", make_api_run()), recorded("b.jd", make_api_run(scale=scale))
    code, out, _ = call("diff", a, b, "--fail-above", "5%")
    assert code == expected
    assert out.splitlines()[2].startswith("gate ")


def test_energies_that_cannot_be_compared_exit_with_2(call: Run) -> None:
    a, b = recorded("a.jd", make_api_run()), recorded("b.jd", make_api_run(domains=("cpu",)))
    code, out, _ = call("diff", a, b)
    assert code == 2
    assert "cannot be compared" in out


def test_reports_are_written_and_rendered_again(call: Run) -> None:
    a, b = recorded("a.jd", make_api_run()), recorded("b.jd", make_api_run(scale=0.5))
    code, out, _ = call("diff", a, b, "-o", "report.md", "--json", "diff.json")
    assert code == 0
    assert "next:" not in out
    diff = api_diff_from_json(Path("diff.json").read_bytes())
    assert diff.ratio is not None
    assert diff.ratio.value > 1.4
    assert Path("report.md").read_text(encoding="utf-8").startswith("### A uses 1.50x the energy of B")
    assert call("render", "diff.json")[1].startswith("A train.py  1,815 J")
    code, out, _ = call("render", "diff.json", "--format", "markdown")
    assert (code, out) == (0, Path("report.md").read_text(encoding="utf-8"))
    code, out, _ = call("diff", a, b, "--json", "-")
    assert json.loads(out)["schema"] == "joulediff.apis-diff/1"


def test_the_json_of_one_run_is_rendered(call: Run) -> None:
    recorded("a.jd", make_api_run())
    assert call("show", "a.jd", "--json", "a.json")[0] == 0
    code, out, _ = call("render", "a.json")
    assert code == 0
    assert out.startswith("train.py  1,815 J")


@pytest.mark.parametrize("order", [("calls.jd", "step.jd"), ("step.jd", "calls.jd")])
def test_a_script_and_a_step_are_not_compared(call: Run, order: tuple[str, str]) -> None:
    recorded("calls.jd", make_api_run())
    save(small_run(), "step.jd")
    code, _, err = call("diff", *order)
    assert code == 1
    assert "calls.jd (API calls of a script) and step.jd (step of a program) cannot be compared" in err
    assert "record both with `joulediff apis" in err


def test_a_script_and_a_program_are_not_compared(call: Run) -> None:
    recorded("calls.jd", make_api_run())
    Path("step.py").write_text("def build(): return lambda: None\n", encoding="utf-8")
    code, _, err = call("diff", "calls.jd", "step.py")
    assert code == 1
    assert "step.py (step of a program) cannot be compared" in err


def test_many_steps_need_steps(call: Run) -> None:
    a = recorded("a.jd", make_api_run())
    code, _, err = call("diff", a, a, "--times", "10")
    assert code == 1
    assert "--times cannot be used" in err


def test_a_file_that_is_compared_is_not_replaced(call: Run) -> None:
    a = recorded("a.jd", make_api_run())
    before = Path(a).read_bytes()
    assert call("diff", a, a, "--json", a)[0] == 1
    assert Path(a).read_bytes() == before
