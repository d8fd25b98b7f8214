"""On a real terminal: progress is shown, and what the program prints and the JSON go where they belong."""

import json
import os
import pty
import subprocess
import sys
import threading

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

PROGRAM = """
def build():
    def step():
        print("working")
        return sum(range(2000))
    return step
"""


def run_on_terminal(words, cwd):
    """Run joulediff with standard error on a pseudo-terminal; return its exit code, output and what was shown."""
    ours, theirs = pty.openpty()
    seen = []

    def drain():
        try:
            while chunk := os.read(ours, 65536):
                seen.append(chunk)
        except OSError:
            return  # the other end is closed

    reader = threading.Thread(target=drain)
    reader.start()
    done = subprocess.run(
        [sys.executable, "-m", "joulediff", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=theirs, check=False
    )
    os.close(theirs)
    reader.join()
    os.close(ours)
    return done.returncode, done.stdout.decode(), b"".join(seen).decode(errors="replace")


def test_json_goes_to_the_pipe_and_prints_to_the_terminal(tmp_path):
    (tmp_path / "loud.py").write_text(PROGRAM)
    words = ["measure", "loud.py", "--meter", "estimated", "--seconds", "0.3", "--wait", "0", "--json", "-"]
    code, out, terminal = run_on_terminal(words, tmp_path)
    assert code in (0, 2)
    assert json.loads(out)["schema"] == "joulediff.measure/1"
    assert "working" in terminal
    assert "schema" not in terminal


def test_the_programs_own_prints_stay_on_its_standard_output(tmp_path):
    (tmp_path / "loud.py").write_text(PROGRAM)
    code, out, terminal = run_on_terminal(
        ["measure", "loud.py", "--meter", "estimated", "--seconds", "0.3", "--wait", "0"], tmp_path
    )
    assert code in (0, 2)
    assert out.count("working\n") > 10
    assert "working" not in terminal
    assert "measuring" in terminal
