"""`joulediff record` as a user meets it: real processes, and programs that do everything a program may do."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import joulediff
from cli_builders import make_domain, steady, write_program, write_script
from energy_builders import gpu_run, replay, with_replays
from joulediff.archive.reader import load
from joulediff.archive.writer import save
from joulediff.cli import main
from joulediff.cli.output import StageLines, name_file, refuse_output
from joulediff.cli.record import _File, _summarise
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run
from process_builders import is_alive
from show_builders import compiled, replayed

PLAIN = "def build():\n    return lambda: sum(range(20_000))\n"
OLDER = Run("older", None, "2026-01-01T00:00:00+00:00", "0.1.0")
SHORT = ("--step-seconds", "0.3", "--wait", "0")
TRACEBACK = "Traceback (most recent call last)"
# Prints when its tenth call begins and then takes its time: the moment for a test to interfere.
SLOW_AFTER_NINE = """
    import time
    calls = 0
    def build():
        def step():
            global calls
            calls += 1
            if calls == 10:
                print("ready", flush=True)
            time.sleep(0.02 if calls < 10 else 0.3)
        return step
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def meter(tmp_path: Path) -> str:
    """A steady meter, on a file that is named relative to the folder the test runs in."""
    write_script(tmp_path / "steady.json", (make_domain(window_s=0.05), steady(50.0)))
    return "scripted:steady.json"


@pytest.fixture
def start(tmp_path: Path, meter: str) -> Callable[..., subprocess.Popen[str]]:
    def run(*words: str, **options: Any) -> subprocess.Popen[str]:
        own = list(words[words.index("--") :]) if "--" in words else []
        command = [sys.executable, "-m", "joulediff", "record", *words[: len(words) - len(own)], "--meter", meter]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        # A session of its own, as under a scheduler: no terminal sends Ctrl-C to both processes. And Python's view
        # of the environment: readline, which pytest loads, puts the width of a terminal into the other one.
        options = {"env": dict(os.environ), "start_new_session": True, **options}
        return subprocess.Popen([*command, *SHORT, *own], text=True, cwd=tmp_path, **{**pipes, **options})

    return run


@pytest.fixture
def record(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Ended]:
    def run(*words: str, stdin: str = "") -> Ended:
        with start(*words) as process:
            out, err = process.communicate(stdin, timeout=60)
        return Ended(process.returncode, out, err)

    return run


def test_a_plain_program_has_its_energy_recorded(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    write_program(tmp_path / "plain.py", PLAIN)
    with open_terminal() as (terminal, seen), start("plain.py", "--label", "my step/1", stderr=terminal) as process:
        out, _ = process.communicate("", timeout=60)
    assert process.returncode in (0, 2)
    assert re.search(r"^my step/1  \S+ m?J ± \S+% a step   \S+ [mµ]s a step$", out, re.M)
    assert re.search(r"^the program has loaded no framework .* split by functions, not by operators$", out, re.M)
    assert re.search(r"^my-step-1\.jd  \S+ kB", out, re.M)
    assert out.endswith("next: joulediff show my-step-1.jd\n")
    shown = b"".join(seen).decode().splitlines()
    saving = "joulediff: metered 1/5: saving the initial state of the step"
    assert shown[:3] == ["joulediff: building the program", saving, "joulediff: metered 1/5: warming up"]
    assert shown.count("joulediff: metered 1/5: measuring") == 1
    run = load(tmp_path / "my-step-1.jd")
    assert (run.label, run.program, run.tool) == ("my step/1", "plain.py", joulediff.__version__)
    assert run.measurement is not None
    assert run.measurement.domains["cpu"].power_w == pytest.approx(50.0)
    assert [each.status for each in run.passes] == ["done", "done", "skipped", "done"]
    assert [value.name for value in run.values] == ["output"]
    assert any("no framework" in note for note in run.notes)


@contextmanager
def open_terminal() -> Iterator[tuple[int, list[bytes]]]:
    """Open a pseudo-terminal; the list has its output once it is closed."""
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def drain() -> None:
        try:
            while chunk := os.read(ours, 65536):
                seen.append(chunk)
        except OSError:
            return  # the other end is closed

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield theirs, seen
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


def test_a_stage_is_one_line_whatever_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_terminal() as (terminal, seen), os.fdopen(os.dup(terminal), "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        lines = StageLines()
        for text in ("waiting: 12% busy", "waiting: 3% busy", "measuring", "measuring"):
            lines.stage(text, 0.5)
    assert b"".join(seen).decode().splitlines() == ["joulediff: waiting: 12% busy", "joulediff: measuring"]


def test_a_stage_with_numbers_is_shown_again_at_every_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_terminal() as (terminal, seen), os.fdopen(os.dup(terminal), "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        lines = StageLines()
        for done in range(9):
            lines.stage(f"replayed: {done} of 9 operators", done / 9)
    shown = b"".join(seen).decode().splitlines()
    assert shown == [f"joulediff: replayed: {done} of 9 operators" for done in (0, 3, 6)]


UNRULY = """
    import atexit, ctypes, os, signal, sys, threading, time
    from pathlib import Path
    import neighbour

    print("argv", sys.argv, __name__)
    print("read", sys.stdin.readline().strip())
    print("to stderr", file=sys.stderr)
    atexit.register(print, "at exit")

    def build():
        os.write(1, b"from below\\n")
        sys.stdout.flush()
        ctypes.CDLL(None).puts(b"from C")
        ctypes.CDLL(None).fflush(None)
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        sys.argv[:] = ["mine", "own"]
        sys.path[:] = ["/nowhere"]
        os.environ["PYTHONPATH"] = "/nowhere"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
        if ctypes.CDLL(None).fork() == 0:  # holds the pipe, unknown to Python
            Path("pid").write_text(str(os.getpid()))
            os.close(0); os.close(1); os.close(2)
            time.sleep(600)
            os._exit(0)

        def step():
            if os.fork() == 0:
                return 0
            os.wait()
            return sum(range(20_000))

        return step
"""


def test_an_unruly_program_is_recorded(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "unruly.py", UNRULY)
    write_program(tmp_path / "neighbour.py", "")
    ended = record("unruly.py", "-o", "out.jd", "--", "--epochs", "3", "-o", "x", stdin="a line\n")
    assert ended.code in (0, 2), ended.err
    assert not is_alive(int((tmp_path / "elsewhere" / "pid").read_text()))
    assert ended.err == "to stderr\n"
    lines = ended.out.splitlines()
    said = ["argv ['unruly.py', '--epochs', '3', '-o', 'x'] unruly", "read a line", "from below", "from C", "at exit"]
    assert sorted(lines[:5]) == sorted(said)
    assert lines[-1] == "next: joulediff show out.jd"
    assert load(tmp_path / "out.jd").label == "unruly"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise OSError('no data')", r"build\(\) in bad\.py raised OSError: no data \(bad\.py:3\)"),
        ("import sys; sys.exit(3); return print", r"build\(\) in bad\.py raised SystemExit: 3 \(bad\.py:3\)"),
        (
            "return lambda: 1 / 0",
            r"the step raised ZeroDivisionError: .* \(bad\.py:3\) in call number 1 of the metered pass",
        ),
        (
            "import sys; return lambda: sys.exit(4)",
            r"the step raised SystemExit: 4 \(bad\.py:3\) in call number 1 of the metered pass\n  -vv shows",
        ),
        ("return lambda: os._exit(5)", r"the program ended its process with exit code 5 \(metered 1/5: warming up\)"),
        (
            "return lambda: os.kill(os.getpid(), 9)",
            r"killed by SIGKILL \(metered 1/5: .*\n  it may have run out of mem",
        ),
        ("return lambda: bytearray(1 << 60)", r"the step raised MemoryError .*\n  it ran out of memory"),
        ("return lambda: os.closerange(3, 256)", r"lost contact with the program"),
    ],
)
def test_a_program_that_fails(record: Callable[..., Ended], tmp_path: Path, body: str, said: str) -> None:
    write_program(tmp_path / "bad.py", f"import os\ndef build():\n    {body}\n")
    save(OLDER, tmp_path / "bad.jd")
    ended = record("bad.py")
    assert ended.code == 1
    assert re.search(said, ended.err)
    assert ended.err.startswith("joulediff: ")
    assert ended.err.endswith("nothing was recorded; bad.jd is unchanged\n")
    assert TRACEBACK not in ended.err
    assert ended.out == ""
    assert load(tmp_path / "bad.jd") == OLDER
    assert ended.err.count("-vv shows the traceback") == (" raised " in ended.err)


def test_vv_shows_the_traceback_of_the_child(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "bad.py", "def build():\n    raise OSError('no data')\n")
    ended = record("bad.py", "-vv")
    assert "raise OSError('no data')" in ended.err
    assert "joulediff: build() in bad.py raised OSError" in ended.err
    assert "-vv shows" not in ended.err


def test_a_step_that_fails_keeps_what_was_measured(record: Callable[..., Ended], tmp_path: Path) -> None:
    text = """
        import time
        calls = 0
        def build():
            def step():
                global calls
                calls += 1
                time.sleep(0.02)
                if calls == 12:
                    raise ValueError("out of data")
            return step
    """
    write_program(tmp_path / "fails.py", text)
    ended = record("fails.py")
    assert ended.code == 1
    assert (
        "joulediff: the step raised ValueError: out of data (fails.py:10) in call number 12 of the metered pass"
        in ended.err
    )
    assert "fails.jd holds the recording so far (part of metered): joulediff show fails.jd" in ended.err
    run = load(tmp_path / "fails.jd")
    assert [(each.name, each.status) for each in run.passes] == [("metered", "partial")]
    assert run.measurement is not None
    assert not run.measurement.trustworthy


def test_ctrl_c_keeps_what_was_recorded(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """It comes twice: sent to both processes, and passed on by the parent, which sees no terminal."""
    write_program(tmp_path / "slow.py", SLOW_AFTER_NINE)
    with start("slow.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "joulediff: stopped\n  slow.jd holds the recording so far (part of metered): joulediff show slow.jd\n"
    assert load(tmp_path / "slow.jd").passes[0].status == "partial"


def test_a_child_does_not_outlive_its_parent(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """Standard output ends only when no process has it open."""
    write_program(tmp_path / "slow.py", SLOW_AFTER_NINE)
    with start("slow.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        out, err = process.communicate(timeout=60)
    assert (out, err) == ("", "")


TRAINS = """
    from pathlib import Path
    Path("imported").touch()
    def main():
        Path("trained").touch()
        sum(range(20_000))
    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("program", ["train.py:main", "train.py", "train:main"])
def test_a_function_that_trains_is_not_run_as_a_builder(
    record: Callable[..., Ended], tmp_path: Path, program: str
) -> None:
    write_program(tmp_path / "train.py", TRAINS)
    ended = record(program)
    assert (ended.code, ended.out) == (1, "")
    assert "        return lambda: model(x)\n" in ended.err
    assert "--step" in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steady.json", "train.py"]


def test_a_function_that_trains_is_recorded_as_the_step(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "train.py", TRAINS)
    ended = record("train.py:main", "--step")
    assert ended.code in (0, 2), ended.err
    assert (tmp_path / "trained").exists()
    assert load(tmp_path / "train-main.jd").program == "train.py:main"


# Prints from Python, from a subprocess and from C, on both streams, and at exit.
NOISY = """
    import atexit, ctypes, os, subprocess, sys
    print("at import")
    atexit.register(print, "at exit")
    def build():
        os.write(2, b"raw\\n")
        subprocess.run(["echo", "from below"], check=True)
        ctypes.CDLL(None).puts(b"from C")
        def step():
            print("step", file=sys.stderr)
            {end}
        return step
"""


def test_what_a_program_prints_can_be_hidden(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "noisy.py", NOISY.format(end="sum(range(20_000))"))
    ended = record("noisy.py", "--quiet-program")
    assert ended.code in (0, 2), ended.err
    assert ended.err == ""
    assert ended.out.startswith("noisy  ")
    assert not any(word in ended.out for word in ("at import", "from below", "from C", "at exit"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noisy.jd", "noisy.py", "steady.json"]


@pytest.mark.parametrize("end", ["raise OSError('no data')", "sys.stdout.flush(); os._exit(5)"])
def test_the_last_lines_of_a_hidden_program_explain_its_failure(
    record: Callable[..., Ended], tmp_path: Path, end: str
) -> None:
    write_program(tmp_path / "noisy.py", NOISY.format(end=end))
    ended = record("noisy.py", "--quiet-program")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("joulediff: the ")
    _, said, shown = ended.err.partition("  the last lines that the program printed:\n")
    assert said
    assert {"    raw", "    from below", "    at import", "    step"} <= set(shown.splitlines())
    assert "nothing was recorded" in ended.err


needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
LINEAR = """
    import os
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def build():
        torch.manual_seed(0)
        model, x = torch.nn.Linear(8, 4), torch.randn(2, 8)
        def step():
            if {die} and _get_current_dispatch_mode() is not None:
                os.kill(os.getpid(), 9)
            return torch.relu(model(x))
        return step
"""


@needs_torch
def test_operators_and_kernels_are_counted(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "linear.py", LINEAR.format(die=False))
    ended = record("linear.py", "--no-replay")
    assert ended.code in (0, 2), ended.err
    counted = re.search(r"^(\d+) operators, (\d+) kernels?$", ended.out, re.M)
    assert counted is not None
    run = load(tmp_path / "linear.jd")
    assert [(each.name, each.status) for each in run.passes] == [
        ("metered", "done"),
        ("sampled", "done"),
        ("traced", "done"),
        ("captured", "done"),
    ]
    assert all(row.energy_j is None for row in run.replays)
    assert (len(run.ops), len(run.kernels)) == tuple(map(int, counted.groups()))
    assert "aten::addmm" in {op.name for op in run.ops}


# Two operators, the larger one PyTorch's own. Once inputs are collected, the other one says so when it is called.
REPLAYED = """
    import time
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    seen = []
    library = torch.library.Library("cli_tests", "DEF")
    library.define("small(Tensor x) -> Tensor")

    def small(x):
        if len(seen) == 2 and _get_current_dispatch_mode() is None:
            seen.append("replayed")
            print("ready", flush=True)
            {when_ready}
        return x.clone()

    library.impl("small", small, "CPU")

    def build():
        x, few = torch.randn(1024, 1024), torch.randn(8)
        def step():
            y = x @ x, torch.ops.cli_tests.small(few)
            if _get_current_dispatch_mode() is not None:
                seen.append("watched")
                if len(seen) == 2:
                    {when_collected}
            return y
        return step
"""


def replayed_program(*, when_ready: str = "pass", when_collected: str = "pass") -> str:
    return REPLAYED.format(when_ready=when_ready, when_collected=when_collected)


@needs_torch
def test_a_replay_shows_its_progress(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    write_program(tmp_path / "pair.py", replayed_program())
    with open_terminal() as (terminal, seen), start("pair.py", stderr=terminal) as process:
        process.communicate("", timeout=60)
    assert process.returncode in (0, 2)
    shown = b"".join(seen).decode().splitlines()
    assert "joulediff: replayed 5/5: running the step for the inputs of its operators" in shown
    assert re.fullmatch(r"joulediff: replayed 5/5: 0 of 2 operators, \d+ s left", shown[-3])
    assert re.fullmatch(r"joulediff: replayed 5/5: 1 of 2 operators, \d+ s left", shown[-2])
    run = load(tmp_path / "pair.jd")
    assert [each.status for each in run.passes] == ["done"] * 5
    assert [run.ops[row.op].name for row in run.replays] == ["aten::mm", "cli_tests::small"]
    assert all(row.inputs == "real" for row in run.replays)


@needs_torch
def test_a_replay_whose_time_is_spent_notes_the_rest(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "pair.py", replayed_program(when_collected="time.sleep(0.6)"))
    ended = record("pair.py", "--replay-seconds", "1")
    assert ended.code in (0, 2), ended.err
    run = load(tmp_path / "pair.jd")
    assert [each.status for each in run.passes] == ["done"] * 5
    done, left = run.replays
    assert done.energy_j is not None
    assert (left.energy_j, left.note) == (None, "the 1.000 s for replay were spent")


@needs_torch
@pytest.mark.parametrize("seconds", ["0", "-5", "nan"])
def test_a_replay_of_no_length_is_refused(record: Callable[..., Ended], tmp_path: Path, seconds: str) -> None:
    write_program(tmp_path / "plain.py", PLAIN)
    ended = record("plain.py", "--replay-seconds", seconds)
    assert ended.code == 1
    message = f"joulediff: cannot replay for {seconds} seconds\n  give seconds, or --no-replay\n"
    assert ended.err == message
    assert not (tmp_path / "plain.jd").exists()


@needs_torch
def test_ctrl_c_keeps_what_was_replayed(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    write_program(tmp_path / "pair.py", replayed_program(when_ready="time.sleep(30)"))
    with start("pair.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = "metered, sampled, traced, captured, part of replayed"
    assert err == f"joulediff: stopped\n  pair.jd holds the recording so far ({kept}): joulediff show pair.jd\n"
    run = load(tmp_path / "pair.jd")
    assert [each.status for each in run.passes] == ["done", "done", "done", "done", "partial"]
    row, left = run.replays
    assert run.ops[row.op].name == "aten::mm"
    assert row.energy_j is not None
    assert (left.energy_j, left.note) == (None, "replay ended before its turn")


@needs_torch
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (
            "raise ValueError('seen')",
            r"the step raised ValueError: seen \(pair\.py:\d+\) in call number 1 of the replayed p",
        ),
        ("__import__('os')._exit(5)", r"ended its process with exit code 5 \(replayed 5/5: running the step"),
    ],
)
def test_a_step_that_fails_while_inputs_are_collected_keeps_the_rest(
    record: Callable[..., Ended], tmp_path: Path, deed: str, said: str
) -> None:
    write_program(tmp_path / "pair.py", replayed_program(when_collected=deed))
    ended = record("pair.py")
    assert ended.code == 1
    assert re.search(said, ended.err)
    assert (
        "pair.jd holds the recording so far (metered, sampled, traced, captured): joulediff show pair.jd" in ended.err
    )
    run = load(tmp_path / "pair.jd")
    assert [each.status for each in run.passes] == ["done", "done", "done", "done", "failed"]
    assert all(row.energy_j is None for row in run.replays)


def summary(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, strict: bool) -> tuple[int, list[str]]:
    path = str(tmp_path / "run.jd")
    save(run, path)
    code = _summarise(run, _File(path), strict=strict)
    return code, capsys.readouterr().out.splitlines()


def test_the_summary_says_where_the_energy_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = summary(replayed(), tmp_path, capsys, strict=True)
    assert code == 0
    assert lines[2] == "operators 84%, idle 3%, host 3%, waits 1%, unexplained 9% of the energy"
    most = "most: aten::addmm in transformer.h.*.mlp.c_fc: 868.4 mJ"
    assert lines[3].startswith(f"{most}, aten::addmm in transformer.h.*.mlp.c_proj: 809.9 mJ")
    monkeypatch.setenv("COLUMNS", "60")
    assert most in summary(replayed(), tmp_path, capsys, strict=True)[1]


def test_energy_that_is_unexplained_fails_only_if_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_replays(gpu_run(("gemm", 2e-3, 0)), replay(0, 0.8), calls={0: 0})
    for strict in (False, True):
        code, lines = summary(run, tmp_path, capsys, strict=strict)
        assert code == (2 if strict else 0)
        unexplained = "! 64.0% of the energy is unexplained: the parts of gpu0 sum to less than was metered"
        assert f"{unexplained}; record again on a quiet machine" in lines
        assert "Not trustworthy: the warnings above say why." in lines
    for strict in (False, True):
        assert summary(compiled(), tmp_path, capsys, strict=strict)[0] == 2


@needs_torch
def test_a_program_that_is_killed_late_leaves_the_passes_before(record: Callable[..., Ended], tmp_path: Path) -> None:
    write_program(tmp_path / "dies.py", LINEAR.format(die=True))
    ended = record("dies.py")
    assert ended.code == 1
    assert "killed by SIGKILL (captured 4/5: " in ended.err
    assert "dies.jd holds the recording so far (metered, sampled, traced): joulediff show dies.jd" in ended.err
    run = load(tmp_path / "dies.jd")
    assert [(each.name, each.status) for each in run.passes] == [
        ("metered", "done"),
        ("sampled", "done"),
        ("traced", "done"),
        ("captured", "failed"),
    ]
    assert run.passes[-1].note == "the program was killed by SIGKILL (captured 4/5: running the step)"


@needs_torch
def test_a_step_that_fails_late_says_in_which_call_of_which_pass(record: Callable[..., Ended], tmp_path: Path) -> None:
    program = LINEAR.format(die=True).replace("os.kill(os.getpid(), 9)", "raise ValueError('seen')")
    write_program(tmp_path / "late.py", program)
    ended = record("late.py")
    assert ended.code == 1
    message = (
        r"the step raised ValueError: seen \(late\.py:\d+\) in call number 1 of the captured pass\n  -vv shows the tr"
    )
    assert re.search(message, ended.err)
    assert [each.status for each in load(tmp_path / "late.jd").passes] == ["done", "done", "done", "failed"]


FOREIGN = """
    import sys
    import numpy, psutil, scipy, joulediff
    for name in ("click", "rich", "pyarrow", "pytest"):
        try:
            __import__(name)
        except ImportError:
            continue
        raise AssertionError(f"{name} is not of this environment")

    def build():
        print("prefix", sys.prefix)
        print("scipy", scipy.__file__)
        return lambda: sum(range(20_000))
"""


def make_environment(folder: Path) -> Path:
    """Make an environment of this Python with numpy as its only package, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    import numpy

    site = next(folder.glob("lib/python*/site-packages"))
    installed = Path(numpy.__file__).parents[1]
    for package in installed.glob("numpy*"):
        (site / package.name).symlink_to(package)
    return folder / "bin" / "python"


def test_another_environment_without_joulediff(record: Callable[..., Ended], tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env")
    write_program(tmp_path / "foreign.py", FOREIGN)
    ended = record("foreign.py", "--python", str(python))
    assert ended.code in (0, 2), ended.err
    assert f"prefix {tmp_path / 'env'}\n" in ended.out
    import scipy

    assert f"scipy {scipy.__file__}\n" in ended.out
    assert load(tmp_path / "foreign.jd").measurement is not None


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process that must fail before it starts another, and return its message."""
    monkeypatch.chdir(tmp_path)
    write_program(tmp_path / "plain.py", PLAIN)

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["record", *words])
        out, err = capfd.readouterr()
        assert caught.value.code == 1
        assert out == ""
        return err

    return run


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("nowhere/out.jd", "its folder does not exist"),
        (".", "it is a folder"),
        ("/dev/null", "it is not an ordinary file"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_first(refused: Callable[..., str], place: str, why: str) -> None:
    assert (
        refused("plain.py", "-o", place) == f"joulediff: cannot write {place} ({why})\n  choose another file for -o\n"
    )


def test_the_program_is_not_replaced_by_its_recording(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "link.jd").symlink_to("plain.py")
    for words in (("plain.py", "-o", "plain.py"), ("plain.py:build", "-o", "link.jd")):
        said = f"joulediff: cannot write {words[-1]} (it is the program itself)\n  choose another file for -o\n"
        assert refused(*words) == said
    assert (tmp_path / "plain.py").read_text() == PLAIN


@pytest.mark.parametrize(
    ("name", "data"), [("notes.jd", b"mine"), ("data.zip", b"PK\x03\x04" + bytes(60)), ("empty", b"")]
)
def test_a_file_that_is_no_run_is_not_replaced(
    refused: Callable[..., str], tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    said = refused("plain.py", "-o", name)
    assert f"cannot write {name} (it is a file that joulediff did not write)\n  choose another file" in said
    assert (tmp_path / name).read_bytes() == data


@pytest.mark.parametrize("name", ["older.jd", "older"])
def test_an_older_run_may_be_replaced(tmp_path: Path, name: str) -> None:
    save(OLDER, tmp_path / name)
    refuse_output(str(tmp_path / name), "plain.py")


@pytest.mark.parametrize(("place", "why"), [("nowhere/x.jd", "its folder does not exist"), (".", "it is a folder")])
def test_a_path_that_cannot_be_written_is_refused_before_the_step_runs(tmp_path: Path, place: str, why: str) -> None:
    def step() -> None:
        raise AssertionError("the step ran")

    with pytest.raises(JoulediffError, match=re.escape(f"({why})\n  give another path")):
        joulediff.record(step, path=tmp_path / place)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing argument"),
        (("plain.py", "other.py"), "unexpected extra argument (other.py)"),
        (("plain.py", "--python", "nowhere/python"), "there is no Python at nowhere/python"),
        (("plain.py", "--step-seconds", "soon"), "'soon' is not a valid float"),
    ],
)
def test_a_users_mistake_is_reported_without_a_traceback(
    refused: Callable[..., str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(*words)


def test_help_loads_no_framework_and_no_file_format() -> None:
    code = (
        "import sys\nfrom joulediff.cli import main\ntry:\n    main(['record', '--help'])\nexcept SystemExit:\n"
        "    assert not {'numpy', 'rich', 'pyarrow', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, timeout=60, check=True)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("hf", "hf.jd"),
        ("hf:big", "hf-big.jd"),
        ("../../etc/passwd", "etc-passwd.jd"),
        ("größer als 10%", "größer-als-10.jd"),
        ("...", "run.jd"),
        ("", "run.jd"),
        ("x" * 300, "x" * 60 + ".jd"),
    ],
)
def test_a_label_becomes_a_file_name(label: str, name: str) -> None:
    assert name_file(label) == name
