"""`joulediff diff` as a user meets it: recordings, programs, both, and programs that fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import paths
from cli_builders import write_program
from joulediff.archive.reader import load
from joulediff.archive.writer import save
from joulediff.cli import main
from joulediff.diagnosis.interleaved_recording import Program, record_fixed
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.process.interpreter import Interpreter
from joulediff.process.request import Request
from joulediff.session.record import record

MATCH = paths.GOLDEN / "match"
EAGER, FUSED = str(MATCH / "gpt2_eager.jd"), str(MATCH / "gpt2_sdpa.jd")
BERT, AGAIN = str(MATCH / "h200_bert.jd"), str(MATCH / "h200_bert_again.jd")
SHORT = ("--seconds", "0.2", "--replay-seconds", "0.4", "--wait", "0", "--meter", "estimated")
PLAIN = "def build():\n    return lambda: sum(range(20_000))\n"
QUICK: dict[str, Any] = {"seconds": 0.05, "wait_s": 0.0, "meter": "estimated", "replay": False}


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.WINDOW_S", 0.1)


@pytest.fixture
def diff(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command here; its programs have processes of their own."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["diff", *words])
        sys.stdout.flush()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


def recorded(step: Callable[[], Any], name: str) -> str:
    """Record a step here, and return its file."""
    save(record(step, label=name, **QUICK), f"{name}.jd")
    return f"{name}.jd"


def test_two_recordings_as_text(diff: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, err = diff(EAGER, FUSED, "--all")
        assert (code, err) == (0, "")
        assert out.startswith("A gpt2 eager") and "\nB gpt2 sdpa" in out
        assert all(len(line) <= columns for line in out.splitlines() if "next:" not in line)
        assert "all of a step" in out


def test_two_recordings_in_every_form(diff: Callable[..., Any], tmp_path: Path) -> None:
    code, out, _ = diff(EAGER, FUSED, "--json", "-", "-o", "report.md", "--label-a", "mine", "--label-b", "yours")
    assert code == 0
    found = json.loads(out)
    assert found["schema"] == "joulediff.diff/2"
    assert (found["a"]["label"], found["b"]["label"]) == ("mine", "yours")
    assert "mine" in (tmp_path / "report.md").read_text()
    code, out, _ = diff(EAGER, FUSED, "--markdown", "-")
    assert code == 0 and out.startswith("#")
    code, out, _ = diff(EAGER, FUSED, "-o", "report.txt", "--json", "diff.json")
    assert out.startswith("A gpt2 eager"), "what goes to files is shown as well"
    assert json.loads((tmp_path / "diff.json").read_text())["schema"] == "joulediff.diff/2"


def test_a_recording_against_itself_and_its_like(diff: Callable[..., Any]) -> None:
    for pair, verdict in (((EAGER, EAGER), "cannot tell"), ((BERT, AGAIN), "passed")):
        code, out, _ = diff(*pair, "--json", "-", "--fail-above", "25%")
        found = json.loads(out)
        assert (code, found["gate"]["verdict"]) == (0 if verdict == "passed" else 2, verdict)
        assert found["findings"] == []


def test_runs_that_were_not_measured_alike(diff: Callable[..., Any]) -> None:
    code, out, _ = diff(EAGER, BERT)
    assert code == 2
    assert out.index("cannot be compared") < out.index("all of a step")
    code, out, _ = diff(EAGER, BERT, "--fail-above", "5%", "--json", "-")
    found = json.loads(out)
    assert (code, found["comparable"], found["findings"], found["ratio"]) == (2, False, [], None)
    assert (found["gate"]["verdict"], found["gate"]["reason"]) == ("cannot tell", "conditions")


def with_energy(file: str, joules: float) -> Run:
    """A recording with other joules in all, as sure as a good meter is."""
    run = load(file)
    assert run.measurement is not None
    energy = Energy(joules, joules * 0.99, joules * 1.01, "metered")
    domains = {name: replace(each, energy=energy) for name, each in run.measurement.domains.items()}
    return replace(run, measurement=replace(run.measurement, energy=energy, domains=domains))


@pytest.mark.parametrize(
    ("joules", "limit", "code", "verdict"),
    [
        (2.4, "5%", 3, "failed"),
        (2.4, "30%", 0, "passed"),
        (1.6, "5%", 0, "passed"),
        (2.01, "5%", 2, "cannot tell"),
        (2.4, None, 0, None),
    ],
)
def test_a_limit_for_ci(
    diff: Callable[..., Any], tmp_path: Path, joules: float, limit: str | None, code: int, verdict: str | None
) -> None:
    save(with_energy(EAGER, 2.0), "base.jd")
    save(with_energy(FUSED, joules), "new.jd")
    files = ("--json", "diff.json", "--markdown", "diff.md")
    found, out, _ = diff("base.jd", "new.jd", *files, *(("--fail-above", limit) if limit else ()))
    assert found == code
    gate = json.loads((tmp_path / "diff.json").read_text())["gate"]
    assert (None if gate is None else gate["verdict"]) == verdict
    for text in (out, (tmp_path / "diff.md").read_text()):
        assert (f"gate {verdict}: B uses {joules / 2:.3f}x the energy of A (95% CI" in text) == (verdict is not None)
        assert ("compare the two programs themselves" in " ".join(text.split())) == (verdict == "cannot tell")


def test_a_limit_holds_also_where_both_programs_ran_the_same_kernels(diff: Callable[..., Any]) -> None:
    save(with_energy(EAGER, 2.0), "base.jd")
    save(with_energy(EAGER, 2.4), "new.jd")
    code, out, _ = diff("base.jd", "new.jd", "--fail-above", "5%")
    assert code == 3
    assert "not explained: B uses 400.0 mJ more" in out and "No finding" not in out
    assert diff("new.jd", "base.jd", "--fail-above", "5%")[0] == 0, "A may use more"
    save(with_energy(EAGER, 2.01), "near.jd")
    assert diff("base.jd", "near.jd", "--fail-above", "0.1%")[0] == 2, "within noise"


def test_two_programs_with_nothing_in_common(diff: Callable[..., Any]) -> None:
    x, image = torch.randn(8, 8), torch.rand(1, 3, 9, 9)
    first = recorded(lambda: torch.linalg.inv(x + 9 * torch.eye(8)), "first")
    second = recorded(lambda: torch.nn.functional.interpolate(image, scale_factor=3.0, mode="bilinear"), "second")
    code, out, _ = diff(first, second)
    assert code == 0
    assert "compute nothing that is equal: they may not do the same job" in out
    assert "not explained" in out and "No finding" not in out


def test_outputs_that_differ_are_no_waste(diff: Callable[..., Any]) -> None:
    x = torch.randn(64, 64)
    first = recorded(lambda: (x @ x).relu() @ x, "first")
    second = recorded(lambda: (x @ x).relu() * 2, "second")
    code, out, _ = diff(first, second, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert not [each for each in found["findings"] if each["verdict"] == "waste"]
    assert found["a"]["unmatched"] or found["b"]["unmatched"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.jd", EAGER), "missing.jd cannot be read"),
        ((EAGER, FUSED, "-o", "report.html"), "the suffix of report.html names no report"),
        ((EAGER, FUSED, "-o", "nowhere/x.md"), "choose another file for -o"),
        ((EAGER, FUSED, "--json", "nowhere/x.json"), "cannot write nowhere/x.json (its folder does not exist)"),
        ((EAGER, FUSED, "--markdown", "."), "cannot write . (it is a folder)"),
        ((EAGER, FUSED, "--json", "-", "--markdown", "-"), "two reports cannot share standard output"),
        ((EAGER, FUSED, "--fail-above", "much"), "'much' is not a share"),
        (("plain.py", "plain.py", "-o", "plain.py"), "plain.py"),
        (("plain.py", "plain.py", "--json", "plain.py"), "(it is compared)"),
        (("plain.py", "plain.py", "--keep", "plain.py"), "cannot keep recordings in plain.py"),
        (("plain.py", "plain.py", "--python-b", "nowhere/python"), "there is no Python at nowhere/python"),
        (("plain.py", "trains.py:main"), "main() in trains.py returns nothing"),
        (("plain.py:build", "trains.py:other", "--step"), "trains.py has no other()"),
        (("plain.py", "missing.jd"), "missing.jd cannot be read"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    diff: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    write_program(tmp_path / "plain.py", "raise AssertionError('it was loaded')\nbuild = 1\n")
    write_program(tmp_path / "trains.py", "raise AssertionError('it was loaded')\ndef main(): pass\n")
    before = (tmp_path / "plain.py").read_text()
    code, out, err = diff(*words)
    assert (code, out) == (1, "")
    assert err.startswith("joulediff: ") and said in err
    assert "Traceback" not in err and "it was loaded" not in err
    assert (tmp_path / "plain.py").read_text() == before


def test_a_recording_is_not_written_over(diff: Callable[..., Any], tmp_path: Path) -> None:
    copy = tmp_path / "run.jd"
    copy.write_bytes(Path(EAGER).read_bytes())
    assert diff(str(copy), FUSED, "--json", str(copy))[0] == 1
    assert copy.read_bytes() == Path(EAGER).read_bytes()


def test_a_program_that_cannot_be_built(diff: Callable[..., Any], tmp_path: Path) -> None:
    write_program(tmp_path / "plain.py", PLAIN)
    write_program(tmp_path / "bad.py", "def build():\n    raise ValueError('no such model')\n")
    code, _, err = diff("plain.py", "bad.py", *SHORT)
    assert code == 1
    assert err.startswith("joulediff: bad: build() in bad.py raised ValueError: no such model (bad.py:2)")
    assert not list(tmp_path.glob("*.jd"))


def test_a_first_step_that_fails_leaves_the_other_recording(diff: Callable[..., Any], tmp_path: Path) -> None:
    write_program(tmp_path / "plain.py", PLAIN)
    write_program(tmp_path / "bad.py", "def build():\n    return lambda: [][0]\n")
    code, _, err = diff("plain.py", "bad.py", *SHORT)
    assert code == 1
    assert "bad: the step raised IndexError" in err and "call number 1 of the metered pass" in err
    assert "the recording of plain.py is kept: joulediff show a-plain.jd" in err
    kept = load("a-plain.jd")
    assert kept.label == "plain" and kept.measurement is not None


DIES_TRACED = """
    import os, torch

    def build():
        x = torch.ones(8)

        def step():
            if torch.autograd.profiler._is_profiler_enabled:
                os._exit(7)
            return x + 1

        return step
"""


def test_a_program_that_dies_in_the_traced_pass(diff: Callable[..., Any], tmp_path: Path) -> None:
    write_program(tmp_path / "plain.py", PLAIN)
    write_program(tmp_path / "dies.py", DIES_TRACED)
    code, _, err = diff("plain.py", "dies.py", *SHORT, "--keep", "kept")
    assert code == 1
    assert "dies: the program ended its process with exit code 7 (traced 3/5" in err
    for name in ("plain", "dies"):
        side = "a" if name == "plain" else "b"
        assert f"the recording of {name}.py is kept: joulediff show kept/{side}-{name}.jd" in err
    passes = [(each.name, each.status) for each in load("kept/b-dies.jd").passes]
    assert passes == [("metered", "done"), ("sampled", "done"), ("traced", "failed")]
    assert not list(tmp_path.glob("*.jd"))


TALKS = """
    import torch

    def build():
        torch.manual_seed(0)
        x, w = torch.randn(64, 64), torch.randn(64, 64)
        print("built", flush=True)

        def step():
            with torch.no_grad():
                return torch.relu(x @ w)

        return step
"""


def test_a_program_against_itself_and_its_recording(diff: Callable[..., Any], tmp_path: Path) -> None:
    write_program(tmp_path / "talks.py", TALKS)
    code, out, err = diff("talks.py", "talks.py", *SHORT, "--json", "-", "-o", "report.md", "--keep", "kept")
    found = json.loads(out)
    assert err.count("built\n") == 2, "what a program prints goes where it does not disturb"
    assert code == 0, err
    assert found["findings"] == []
    assert found["comparable"]
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"a-talks.jd", "b-talks.jd"}
    a, b = load("kept/a-talks.jd"), load("kept/b-talks.jd")
    assert a.measurement is not None and a.measurement.energy.joules == found["a"]["step"]["energy"]["joules"]
    assert [op.name for op in a.ops] == [op.name for op in b.ops]
    assert "all of a step" in (tmp_path / "report.md").read_text()
    code, out, err = diff("kept/a-talks.jd", "talks.py", *SHORT, "--confirm", "--label-b", "now")
    assert code == 0, err
    assert out.startswith("built\nA talks") and "\nB now" in out


def test_a_fix_that_cannot_be_put_in_force(tmp_path: Path) -> None:
    program = write_program(tmp_path / "plain.py", PLAIN)
    request = Request(program, RecordOptions(label="plain", seconds=0.1, wait_s=0.0, meter="estimated"))
    with pytest.raises(JoulediffError, match=r"torch\.num_threads cannot be changed: the program uses no framework"):
        record_fixed(
            Program(request, Interpreter(sys.executable), lambda _: None),
            {"torch.num_threads": 1},
            listener=ProgressListener(),
        )


def test_the_environment_of_a_fix_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JD_MODE", "slow")
    text = f"import os\ndef build():\n    open({str(tmp_path / 'mode')!r}, 'w').write(os.environ['JD_MODE'])\n"
    path = write_program(tmp_path / "plain.py", text + "    return lambda: sum(range(20_000))\n")
    request = Request(path, RecordOptions(label="plain", seconds=0.1, wait_s=0.0, meter="estimated"))
    program = Program(request, Interpreter(sys.executable), lambda _: None)
    run = record_fixed(program, {"env.JD_MODE": "fast"}, listener=ProgressListener())
    assert (tmp_path / "mode").read_text() == "fast"
    assert run.measurement is not None
    assert os.environ["JD_MODE"] == "slow"


def test_what_the_programs_print_can_be_hidden(diff: Callable[..., Any], tmp_path: Path) -> None:
    write_program(tmp_path / "fine.py", "def build():\n    print('fine')\n    return lambda: None\n")
    write_program(tmp_path / "fails.py", "def build():\n    print('no data')\n    return 1 / 0\n")
    code, out, err = diff("fine.py", "fails.py", "--quiet-program")
    assert (code, out) == (1, "")
    assert "fine" not in err.replace("fine.py", "")
    assert err.endswith("\n  the last lines that the program printed:\n    no data\n")
