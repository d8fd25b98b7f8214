"""`joulediff cases` as a user calls it: the list, one case, a run, and the judgement of kept results."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from case_builders import GELU, write_case, write_copies, write_toml
from diff_builders import gpt2_diff, side
from joulediff.archive.reader import load
from joulediff.archive.writer import save
from joulediff.cases.case import read_case
from joulediff.cases.results import judge_diff, open_results, read_results
from joulediff.cases.run import SAME_LABEL
from joulediff.cli import main
from joulediff.report.json.diff import diff_from_json, diff_to_json
from run_builders import gpt2_run

SHORT = ("--seconds", "0.5", "--replay-seconds", "3", "--wait", "0", "--meter", "estimated", "--device", "cpu")
TRIES = 3
FAILS = "def build():\n    raise ValueError('no such model')\n"

Cases = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cases:
    """Runs the command here with the library in `lib`; programs of cases have processes of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOULEDIFF_CASES", "lib")
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.cases.library.has_nvidia", lambda: False)
    (tmp_path / "lib").mkdir()

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["cases", *words])
        sys.stdout.flush()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


def write_failing(folder: Path) -> None:
    write_case(folder, **GELU)
    (folder / "wasteful.py").write_text(FAILS)


def keep(folder: Path, **labels: str) -> None:
    """Write the files that a run of a case keeps; its first finding is that of `GELU`."""
    folder.mkdir(parents=True)
    sides = {name: side(label, 612.4 if name == "a" else 494.2) for name, label in labels.items()}
    (folder / "diff.json").write_text(diff_to_json(gpt2_diff(**sides)))
    save(gpt2_run(), folder / "a.jd")


def test_the_list(cases: Cases) -> None:
    write_case(Path("lib/tf32"), devices=["cuda"])
    write_copies(Path("lib/copies"))
    code, out, err = cases("list")
    assert (code, err) == (0, "")
    assert "only on cuda" in out and "1 of 2 cases can run here" in out
    code, out, _ = cases("list", "--json", "-")
    found = json.loads(out)
    assert found["schema"] == "joulediff.case-list/1"
    assert [(each["id"], each["lacks"]) for each in found["cases"]] == [("tf32", "only on cuda"), ("copies", None)]
    assert found["cases"][0]["keys"] == ["allow_tf32", "torch.float32_matmul_precision"]


def test_the_library_that_comes_along(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOULEDIFF_CASES")
    code, out, err = cases("list", "--json", "-")
    assert (code, err) == (0, "")
    listed = json.loads(out)["cases"]
    assert listed
    assert all("joulediff/cases/library" in each["folder"] for each in listed)


def test_a_library_by_option_and_no_command(cases: Cases) -> None:
    write_case(Path("mine/tf32"))
    assert "tf32" in cases("--library", "mine", "list")[1]
    code, out, _ = cases()
    assert code == 0 and "judge" in out and "run" in out


def test_one_case(cases: Cases) -> None:
    write_copies(Path("lib/copies"))
    code, out, _ = cases("show", "copies")
    assert code == 0
    assert out.startswith("copies  A copy that nobody needs\n")
    assert "joulediff cases --library lib run copies" in out and "torch.relu" not in out
    assert "return torch.relu(transpose(x))" in cases("show", "copies", "--programs")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "tf31"), "did you mean tf32?"),
        (("run",), "name cases, or give --all"),
        (("run", "tf32", "--all"), "name cases, or give --all"),
        (("run", "--all", "--only", "ours"), "the library has no case that is ours"),
        (("run", "tf32", "--only", "ours"), "none of these cases is ours"),
        (("run", "tf32", "--json", "x", "--markdown", "x"), "two reports cannot share x"),
        (("--library", "empty", "list"), "empty holds no case"),
        (("run", "tf32", "--json", "nowhere/x.json"), "cannot write nowhere/x.json"),
        (("run", "tf32", "--json", "-", "--markdown", "-"), "two reports cannot share standard output"),
        (("run", "tf32", "--keep", "file"), "cannot keep cases in file"),
        (("--library", "nowhere", "list"), "there is no folder nowhere"),
        (("judge", "nowhere"), "there is no folder nowhere"),
        (("judge", "lib"), "lib keeps no case"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(cases: Cases, words: tuple[str, ...], said: str) -> None:
    write_failing(Path("lib/tf32"))
    Path("file").write_text("")
    Path("empty").mkdir()
    code, out, err = cases(*words)
    assert (code, out) == (1, "")
    assert err.startswith("joulediff: ") and said in err


@pytest.mark.live
def test_a_case_runs_is_judged_and_is_judged_again(cases: Cases) -> None:
    write_copies(Path("lib/copies"))
    for _ in range(TRIES):  # on a busy machine a look may miss it
        code, out, err = cases("run", "copies", *SHORT, "--keep", "kept", "--markdown", "report.md")
        (kept,) = read_results(Path("kept"))
        if kept.outcome == "found":
            break
    assert code == 0, out + err
    assert out.startswith("A wasteful") and "\nB lean" in out
    assert "\ncopies: found, " in out and "redundant: contiguous" in out
    assert {path.name for path in Path("kept/copies").iterdir()} == {"a.jd", "b.jd", "diff.json"}
    assert load("kept/copies/a.jd").label == "wasteful"
    assert diff_from_json(Path("kept/copies/diff.json").read_bytes()).b.label == "lean"
    assert (kept.case, kept.outcome, kept.finding, kept.told_key) == ("copies", "found", "1", "contiguous")
    assert kept.rank_energy is not None and kept.rank_time is not None
    assert kept.seconds is not None and kept.versions.startswith("torch ")
    assert "<code>copies</code>" in Path("report.md").read_text()
    code, out, err = cases("judge", "kept", "--json", "-")
    assert (code, err) == (0, "")
    assert json.loads(out)["judgements"] == json.loads(Path("kept/results.json").read_text())["judgements"]
    assert "1 of 1 found and confirmed" in cases("judge", "kept")[1]


@pytest.mark.live
def test_a_case_that_fails_and_one_that_cannot_run(cases: Cases) -> None:
    write_failing(Path("lib/fails"))
    write_case(Path("lib/other"), devices=["cuda"])
    code, out, _ = cases("run", "--all", *SHORT, "--keep", "kept")
    assert code == 3
    assert out.startswith("fails: failed, ")
    assert "(wasteful: build() in wasteful.py raised ValueError: no such model (wasteful.py:2))\n" in out
    assert "\nother: not run, only on cuda\n" in out
    assert "0 of 1 found and confirmed, 1 failed, 1 not run" in out
    assert {each.case: each.outcome for each in read_results(Path("kept"))} == {"fails": "failed", "other": "not run"}
    code, out, _ = cases("judge", "kept")
    assert code == 3 and "0 of 1 found and confirmed, 1 failed, 1 not run" in out
    code, out, err = cases("run", "other", *SHORT, "--json", "-")
    assert code == 0, "what cannot run here is no failure"
    assert json.loads(out)["judgements"][0]["note"] == "only on cuda"
    assert err == "other: not run, only on cuda\n"


def test_stopping_keeps_what_was_judged(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        write_failing(Path("lib") / name)

    def stopped(case: Any, **_: Any) -> Any:
        if case.id == "b":
            raise KeyboardInterrupt
        keep(Path("kept") / case.id, a="wasteful", b="lean")
        return gpt2_diff(), {"a": Path("kept") / case.id / "a.jd"}

    monkeypatch.setattr("joulediff.cases.run.run_case", stopped)
    code, out, err = cases("run", "--all", *SHORT, "--keep", "kept", "--json", "report.json")
    assert (code, err.strip()) == (130, "joulediff: stopped")
    assert "1 of 1 found and confirmed" in out
    assert [each.case for each in read_results(Path("kept"))] == ["a"]
    assert len(json.loads(Path("report.json").read_text())["judgements"]) == 1


def test_a_run_that_reached_its_budget_is_continued(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        write_case(Path("lib") / name, **GELU)
    begun = []

    def run_case(case: Any, **_: Any) -> Any:
        begun.append(case.id)
        keep(Path("kept") / case.id, a="wasteful", b="lean")
        return gpt2_diff(), {"a": Path("kept") / case.id / "a.jd"}

    monkeypatch.setattr("joulediff.cases.run.run_case", run_case)
    code, out, _ = cases("run", "--all", *SHORT, "--keep", "kept", "--budget", "0")
    assert code == 0 and "the budget is spent; not begun: 2 of 3\n" in out
    code, out, _ = cases("run", "--all", *SHORT, "--keep", "kept", "--skip-done")
    assert (code, begun) == (0, ["a", "b", "c"])
    assert [each.case for each in read_results(Path("kept"))] == ["a", "b", "c"]
    assert "2 of 2 found and confirmed" in out
    assert "--skip-done needs a folder" in cases("run", "--all", "--skip-done")[2]


def test_a_stop_while_fixes_are_tried_is_one(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis continues after Ctrl-C has ended the programs; such a diff must not be judged."""
    write_case(Path("lib/tf32"))

    def compare(*_: Any, **__: Any) -> Any:
        before = signal.signal(signal.SIGINT, lambda *_: None)  # as programs that are tried do
        os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, before)
        return gpt2_diff()

    monkeypatch.setattr("joulediff.cases.run.compare_programs", compare)
    code, _, err = cases("run", "tf32", *SHORT, "--keep", "kept")
    assert (code, err.strip()) == (130, "joulediff: stopped")
    assert read_results(Path("kept")) == () and not Path("kept/tf32/diff.json").exists()


def test_what_was_kept_is_judged_without_its_programs(cases: Cases) -> None:
    write_case(Path("lib/tf32"), **GELU)
    write_case(Path("lib/same"), **GELU)
    keep(Path("kept/tf32"), a="wasteful", b="lean")
    keep(Path("kept/same"), a="lean", b=SAME_LABEL)
    code, out, _ = cases("judge", "kept", "--json", "-")
    assert code == 3
    found = {each["case"]: each for each in json.loads(out)["judgements"]}
    assert found["tf32"]["outcome"] == "found" and found["tf32"]["rank_time"] is not None
    assert found["same"]["outcome"] == "false alarm"
    Path("kept/tf32/a.jd").unlink()
    code, out, _ = cases("judge", "kept", "--markdown", "-")
    assert out.startswith("| case |")


def test_what_was_kept_and_is_damaged(cases: Cases) -> None:
    write_case(Path("lib/tf32"), **GELU)
    keep(Path("kept/tf32"), a="wasteful", b="lean")
    Path("kept/tf32/diff.json").write_text("{}")
    write_case(Path("lib/cut"), **GELU)
    keep(Path("kept/cut"), a="wasteful", b="lean")
    Path("kept/cut/a.jd").write_bytes(b"PK")
    keep(Path("kept/unknown"), a="wasteful", b="lean")
    write_case(Path("lib/good"), **GELU)
    keep(Path("kept/good"), a="wasteful", b="lean")
    code, out, _ = cases("judge", "kept")
    assert code == 3
    assert "tf32: cannot read kept/tf32/diff.json: it holds no diff" in out
    assert "- cut: " in out and "unknown: the library has no such case" in out
    assert "1 of 4 found and confirmed (1 replacement confirmed), 3 failed" in out


def test_judgements_are_computed_anew(cases: Cases) -> None:
    folder = write_case(Path("lib/tf32"), **GELU)
    keep(Path("kept/tf32"), a="wasteful", b="lean")
    with open_results(Path("kept")) as results:
        results.add(judge_diff(read_case(folder), Path("kept/tf32")))
    assert cases("recompute", "kept") == (0, "0 judgements changed\n", "")
    write_case(Path("lib/tf32"), **GELU, lines=["no such line"])
    assert cases("recompute", "kept", "tf32") == (0, "tf32: outcome, line_right, note\n1 judgement changed\n", "")
    Path("kept/tf32/a.jd").unlink()
    code, _, err = cases("recompute", "kept")
    assert code == 1 and "kept is not as it was recorded: tf32/a.jd" in err


def test_a_broken_case_is_no_matter_of_the_others(cases: Cases) -> None:
    write_case(Path("lib/good"))
    write_toml(Path("lib/broken"), "title = ")
    assert cases("show", "good")[0] == 0
    code, _, err = cases("show", "broken")
    assert code == 1 and "lib/broken/case.toml" in err


@pytest.mark.live
def test_tracebacks_on_demand(cases: Cases) -> None:
    write_failing(Path("lib/fails"))
    assert "Traceback" not in cases("run", "fails", *SHORT)[2]
    assert "ValueError: no such model" in cases("run", "fails", *SHORT, "-vv")[2]
    assert "Traceback" in cases("-vv", "run", "fails", *SHORT)[2]


@pytest.mark.live
def test_the_lean_program_against_itself(cases: Cases) -> None:
    write_copies(Path("lib/copies"))
    code, out, err = cases(
        "run", "copies", *SHORT, "--seconds", "0.2", "--replay-seconds", "0.4", "--lean", "--keep", "kept"
    )
    assert code == 0, out + err
    assert out.startswith("A lean") and "\nB lean again" in out
    assert "\ncopies: clean, " in out
    assert not Path("kept/copies").exists(), "it is no recording of the case"
    assert "1 of 1 without a finding" in cases("judge", "kept/lean")[1]
