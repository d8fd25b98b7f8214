"""`joulediff scale` as a user meets it: reports, files, exit codes, and programs that fail at a size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_builders import forget_programs, make_domain, make_machine_rest, steady, write_program, write_script
from joulediff.cli import main

pytestmark = pytest.mark.live  # each measures a program against the real clock

# The time of a call is what the size says, so that the energy grows with it at constant power.
SLEEPER = """
    import time
    def build(size, error=None):
        if size == {fails_at}:
            raise {error}
        return lambda: time.sleep(size / 1e6)
    def step(size):
        time.sleep(size / 1e6)
    def needs_no_size():
        return step
"""
PRODUCTS = """
    import numpy as np
    def product(n):
        left, right = np.random.rand(n, n), np.random.rand(n, n)
        return lambda: left @ right
    def roots(n):
        values = np.random.rand(n)
        return lambda: np.sqrt(values)
"""


@pytest.fixture(autouse=True)
def at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    make_machine_rest(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", list(sys.argv))
    before = set(sys.modules)
    yield
    forget_programs(tmp_path, before)


@pytest.fixture
def scale(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    meter = write_script(tmp_path / "steady.json", (make_domain(), steady(50.0)))

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["scale", "--seconds", "0.3", "--wait", "0", "--precision", "400%", "--meter", meter, *words])
        out, err = capfd.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return run


def sleeper(tmp_path: Path, fails_at: int = 0, error: str = "ValueError('no')") -> str:
    return write_program(tmp_path / "sleeper.py", SLEEPER.format(fails_at=fails_at, error=error))


def test_report_and_json(scale: Any, tmp_path: Path) -> None:
    code, out, err = scale(sleeper(tmp_path), "--sizes", "2000,8000,32000", "--json", "found.json")
    assert (code, err) == (0, "")
    assert out.startswith("sleeper  energy grows as ")
    assert "2,000 again" in out
    assert "n = 2,000" in out
    found = json.loads(Path("found.json").read_text())
    assert [each["size"] for each in found["points"]] == [2000, 8000, 32000]
    energy = next(each for each in found["growths"] if each["quantity"] == "energy")
    assert energy["exponent"]["value"] == pytest.approx(1.0, abs=0.2)


def test_the_step_itself_and_a_markdown_file(scale: Any, tmp_path: Path) -> None:
    code, out, _ = scale(f"{sleeper(tmp_path)}:step", "--step", "--sizes", "2000,8000,32000", "-o", "growth.md")
    assert code == 0
    assert (
        Path("growth.md").read_text().startswith("### sleeper:step energy grows as ")
        or "```text" in Path("growth.md").read_text()
    )
    assert "sleeper:step" in out


def test_json_on_standard_output_is_alone_there(scale: Any, tmp_path: Path) -> None:
    code, out, _ = scale(sleeper(tmp_path), "--sizes", "2000,4000", "--json", "-")
    assert code == 0
    assert json.loads(out)["schema"] == "joulediff.scale/1"


@pytest.mark.parametrize(("error", "why"), [("MemoryError()", "out of memory"), ("ValueError('no')", "failed")])
def test_a_program_that_fails_at_a_size_keeps_the_others(scale: Any, tmp_path: Path, error: str, why: str) -> None:
    program = sleeper(tmp_path, fails_at=8000, error=error)
    code, out, err = scale(program, "--sizes", "2000,4000,8000", "--json", "found.json")
    assert code == 2
    assert err == ""
    assert f"! the series ended before n = 8,000 ({why}): build() in {program} raised" in " ".join(out.split())
    assert [each["size"] for each in json.loads(Path("found.json").read_text())["points"]] == [2000, 4000]


def test_a_program_that_fails_at_the_first_size(scale: Any, tmp_path: Path) -> None:
    code, out, err = scale(sleeper(tmp_path, fails_at=2000), "--sizes", "2000,4000")
    assert code == 1
    assert out == ""
    assert "raised ValueError: no (sleeper.py:5)" in err


def test_ctrl_c_keeps_the_sizes_so_far(scale: Any, tmp_path: Path) -> None:
    code, out, err = scale(
        sleeper(tmp_path, fails_at=8000, error="KeyboardInterrupt"), "--sizes", "2000,4000,8000", "--json", "found.json"
    )
    assert code == 130
    assert "stopped" in err
    assert "the series ended before n = 8,000" in out
    assert len(json.loads(Path("found.json").read_text())["points"]) == 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("sleeper.py:needs_no_size", "--sizes", "1,2"), "needs_no_size() in sleeper.py takes no argument"),
        (("sleeper.py", "--sizes", "5..1"), "the sizes 5..1 do not go up"),
        (("sleeper.py", "--sizes", "1,2", "-o", "growth.png"), "the suffix of growth.png names no report"),
        (("sleeper.py", "--sizes", "1,2", "-o", "nowhere/growth.md"), "its folder does not exist"),
        (("sleeper.py",), "Missing option '--sizes'"),
        (("missing.py", "--sizes", "1,2"), "there is no file missing.py"),
    ],
)
def test_errors_of_the_user(scale: Any, tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    sleeper(tmp_path)
    code, out, err = scale(*words)
    assert code == 1
    assert out == ""
    assert what in err


@pytest.mark.parametrize(
    ("name", "sizes", "low", "high"), [("product", "64..768/5", 2.2, 3.4), ("roots", "3e4..3e6/5", 0.8, 1.25)]
)
def test_real_work_on_the_cpu(scale: Any, tmp_path: Path, name: str, sizes: str, low: float, high: float) -> None:
    """A product of two n x n matrices takes 2 n^3 operations, a root of each of n values takes n."""
    program = write_program(tmp_path / "products.py", PRODUCTS)
    code, out, err = scale(
        f"{program}:{name}", "--sizes", sizes, "--meter", "estimated", "--seconds", "1", "--json", "-"
    )
    assert code in (0, 2), err
    found = {each["quantity"]: each for each in json.loads(out)["growths"]}
    exponent = found["energy"]["exponent"]
    assert exponent["low"] <= high
    assert exponent["high"] >= low
    assert low <= exponent["value"] <= high
