"""`joulediff patch`: what it writes, what it refuses, and that patched programs run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import paths
from golden_files import check_golden
from joulediff.cli import main
from notebook_builders import code, write

PROGRAMS = ("torch_train", "sklearn_fit", "keras_fit")
NEEDS = {"torch_train": "torch", "sklearn_fit": "sklearn", "keras_fit": "tensorflow"}


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["patch", *words])
    return ended.value.code if isinstance(ended.value.code, int) else 0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(b"import numpy as np\nprint(np.ones(2))\n")
    return path


def program(name: str, folder: Path) -> Path:
    path = folder / f"{name}.py"
    path.write_bytes((paths.GOLDEN / "patch" / f"{name}.py.txt").read_bytes())
    return path


@pytest.mark.parametrize("name", PROGRAMS)
def test_patched_programs_are_as_expected(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    path = program(name, tmp_path)
    assert call(str(path), "-o", str(tmp_path / "measured.py")) == 0
    check_golden(f"patch/{name}.measured.py.txt", (tmp_path / "measured.py").read_text(encoding="utf-8"), pytestconfig)
    assert call("--undo", str(tmp_path / "measured.py"), "-o", str(tmp_path / "undone.py")) == 0
    assert (tmp_path / "undone.py").read_bytes() == path.read_bytes()


def execute(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "JOULEDIFF_WAIT": "0", "PYTHONPATH": str(paths.ROOT / "src"), "PYTHONUTF8": "1", **environment}
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, env=env, check=False
    )


@pytest.mark.live
@pytest.mark.parametrize("name", PROGRAMS)
def test_patched_programs_print_the_same_and_report_their_calls(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS[name])
    path, measured, report = program(name, tmp_path), tmp_path / "measured.py", tmp_path / "report.json"
    assert call(str(path), "-o", str(measured)) == 0
    plain = execute(path)
    found = execute(measured, JOULEDIFF_OUTPUT=str(report), JOULEDIFF_QUIET="1")
    assert (found.returncode, found.stdout) == (plain.returncode, plain.stdout) and plain.returncode == 0, found.stderr
    run = json.loads(report.read_text(encoding="utf-8"))
    sites = {(site["file"], site["line"]) for api in run["apis"] for site in api["sites"]}
    assert len(sites) >= 6
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(Path(file) == path and "(" in lines[line - 1] for file, line in sites)
    assert NEEDS[name] in {api["library"] for api in run["apis"]}


@pytest.mark.live
def test_the_end_of_a_program_stays(tmp_path: Path) -> None:
    path, measured = tmp_path / "train.py", tmp_path / "measured.py"
    path.write_text("import numpy as np, sys\nx = np.ones(2)\nif len(sys.argv) > 9: np.f()\nraise KeyError(x.sum())\n")
    assert call(str(path), "-o", str(measured)) == 0
    found = execute(measured, JOULEDIFF_OUTPUT=str(tmp_path / "run.jd"))
    assert found.returncode == 1
    assert "line 8, in <module>" in found.stderr and "KeyError: np.float64(2.0)" in found.stderr
    assert "the program raised KeyError" in found.stderr and "numpy.ones" in found.stderr
    assert (tmp_path / "run.jd").exists() and found.stdout == ""


@pytest.mark.live
@pytest.mark.parametrize(
    "end, code, ending", [("sys.exit(3)", 3, "exit"), ("raise SystemExit", 0, "exit"), ("", 0, "end")]
)
def test_the_report_tells_sys_exit_from_the_end(tmp_path: Path, end: str, code: int, ending: str) -> None:
    path, measured, report = tmp_path / "train.py", tmp_path / "measured.py", tmp_path / "report.json"
    path.write_text(f"import sys\nimport numpy as np\nx = np.ones(2)\n{end}\n")
    assert call(str(path), "-o", str(measured)) == 0
    found = execute(measured, JOULEDIFF_OUTPUT=str(report))
    assert found.returncode == code
    assert json.loads(report.read_text(encoding="utf-8"))["ending"] == ending
    assert ("the program called sys.exit" in found.stderr) == (ending == "exit")


@pytest.mark.live
def test_the_whole_program_is_measured(script: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured.py"
    assert call(str(script), "-o", str(measured), "--level", "project") == 0
    found = execute(measured, JOULEDIFF_OUTPUT=str(tmp_path / "report.json"))
    assert (found.returncode, found.stdout) == (0, "[1. 1.]\n")
    assert json.loads((tmp_path / "report.json").read_text())["apis"] == []


@pytest.mark.live
def test_a_wrong_environment_variable_is_an_error_before_the_program(script: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured.py"
    assert call(str(script), "-o", str(measured)) == 0
    found = execute(measured, JOULEDIFF_WAIT="soon")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "joulediff: JOULEDIFF_WAIT=soon is no number of seconds\n  set it to 0, 10 or so\n"


def test_the_diff_is_printed_and_nothing_written(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(str(script), "--diff") == 0
    shown = capsys.readouterr().out
    assert "-print(np.ones(2))\n+print(measured(np.ones)(2))\n" in shown
    assert [each.name for each in script.parent.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"# -*- coding: latin-1 -*-\nimport numpy\nnumpy.f('\xe9')", "latin-1"),
        (b"\xef\xbb\xbfimport numpy\r\nnumpy.f('\xc3\xa9')\r\n", "utf-8-sig"),
        (b"import numpy\n\x0cif numpy.f():\n\tnumpy.g()", "utf-8"),
        (b"# coding: cp1252\r\nimport numpy\r\nnumpy.f('\x80')\r\n", "cp1252"),
    ],
)
def test_the_form_of_the_file_stays(content: bytes, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(content)
    assert call(str(tmp_path / "a.py"), "-o", str(tmp_path / "b.py")) == 0
    patched = (tmp_path / "b.py").read_bytes()
    assert "measured(numpy.f)(" in patched.decode(encoding)
    assert patched.count(b"\r\n") == (patched.count(b"\n") if b"\r\n" in content else 0)
    assert call("--undo", str(tmp_path / "b.py"), "-o", str(tmp_path / "c.py")) == 0
    assert (tmp_path / "c.py").read_bytes() == content


def test_a_script_stays_executable(script: Path) -> None:
    script.chmod(0o755)
    assert call(str(script), "-o", str(script.parent / "b.py")) == 0
    assert (script.parent / "b.py").stat().st_mode & 0o777 == 0o755


def test_reports_name_the_program_from_the_folder_of_the_patched_one(script: Path) -> None:
    (script.parent / "out").mkdir()
    assert call(str(script), "-o", str(script.parent / "out" / "b.py"), "--library", "numpy", "--library", "x") == 0
    assert 'measured.start("../train.py", "numpy", "x")\n' in (script.parent / "out" / "b.py").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.py"], "say where to write the program"),
        (["none.py", "-o", "b.py"], "there is no file none.py"),
        (["train.py", "-o", "train.py", "--force"], "it is the program itself"),
        (["train.py", "-o", "other.py"], "there is such a file"),
        (["train.py", "-o", "none/b.py"], "its folder does not exist"),
        (["train.py", "-o", "b.py", "--library", "no-name"], "'no-name' is no name of a library"),
        (["other.py", "-o", "b.py"], "other.py imports none of"),
        (["--undo", "train.py", "-o", "b.py"], "train.py is not patched"),
        (["--undo", "train.py", "-o", "b.py", "--level", "project"], "--undo takes everything out"),
        (["broken.py", "-o", "b.py"], "broken.py is no valid Python, line 1"),
        (["wrong.py", "-o", "b.py"], "wrong.py is no valid Python"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: list[str], said: str, script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(script.parent)
    Path("other.py").write_text("x.f()\n")
    Path("broken.py").write_text("f(\n")
    Path("wrong.py").write_bytes(b"# coding: none\nf()\n")
    assert call(*words) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") >= 2
    assert not Path("b.py").exists() and Path("other.py").read_text() == "x.f()\n"


def test_an_existing_file_is_replaced_with_force(script: Path) -> None:
    target = script.parent / "b.py"
    target.write_text("old")
    assert call(str(script), "-o", str(target), "--force") == 0
    assert "measured(np.ones)" in target.read_text()


def test_a_notebook_is_patched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, code("import numpy\n", "numpy.ones(1)"))
    assert call(path, "-o", str(tmp_path / "b.ipynb")) == 0
    assert "measures 1 call that may be of numpy\nnext: open it in Jupyter" in capsys.readouterr().err
    assert call("--undo", str(tmp_path / "b.ipynb"), "-o", str(tmp_path / "c.ipynb")) == 0
    assert (tmp_path / "c.ipynb").read_bytes() == Path(path).read_bytes()
