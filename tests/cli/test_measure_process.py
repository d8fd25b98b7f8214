"""`joulediff measure` runs the program in a process under a guard, and behaves as if it were its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_builders import make_domain, steady, write_program, write_script
from process_builders import is_alive

pytestmark = pytest.mark.live
LIMIT_S = 60.0
WORKERS = """
    import os, subprocess, sys, time
    from pathlib import Path

    def build():
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path("pids.new").write_text(f"{os.getpid()} {started.pid}")
        Path("pids.new").rename("pids")
        return lambda: time.sleep(0.002)
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    write_script(tmp_path / "steady.json", (make_domain(window_s=0.05), steady(50.0)))

    def run(text: str, *options: str) -> subprocess.Popen[str]:
        write_program(tmp_path / "program.py", text)
        words = [sys.executable, "-m", "joulediff", "measure", "program.py", "--meter", "scripted:steady.json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*words, "--wait", "0", *options], cwd=tmp_path, text=True, **pipes)

    return run


def wait_until(is_done: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + LIMIT_S
    while not is_done() and time.monotonic() < end_s:
        time.sleep(0.02)
    return is_done()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems find no process in a session of its own")
@pytest.mark.parametrize("victim", ["joulediff", "program"])
def test_a_kill_leaves_no_process(start: Callable[..., subprocess.Popen[str]], tmp_path: Path, victim: str) -> None:
    with start(WORKERS, "--seconds", "100") as parent:
        assert wait_until((tmp_path / "pids").exists)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        os.kill(parent.pid if victim == "joulediff" else pids[0], signal.SIGKILL)
        _, errors = parent.communicate(timeout=LIMIT_S)
    assert wait_until(lambda: not any(map(is_alive, pids)))
    if victim == "program":
        assert parent.returncode == 1
        assert "killed by SIGKILL (measuring the program)" in errors


def test_the_exit_code_and_the_output_are_those_of_the_program(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    with start("def build():\n    raise ValueError('no data')\n") as parent:
        output, errors = parent.communicate(timeout=LIMIT_S)
    assert (parent.returncode, output) == (1, "")
    assert errors.count("ValueError: no data") == 1


def test_an_interrupt_is_reported_once(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    with start(WORKERS, "--seconds", "100") as parent:
        assert wait_until((tmp_path / "pids").exists)
        parent.send_signal(signal.SIGINT)
        _, errors = parent.communicate(timeout=LIMIT_S)
    assert parent.returncode == 130
    assert errors.count("stopped") == 1
