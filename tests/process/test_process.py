"""The parent's side of a recording, with scripted children: every kind of end is noticed, explained and survived."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from joulediff.archive.snapshot import Snapshot, to_wire
from joulediff.model.errors import ArchiveError, JoulediffError, ProgramError
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Pass, PassName, Run
from joulediff.process.exit_reasons import ProgramRaised, RemoteTraceback, Stopped
from joulediff.process.interpreter import Interpreter
from joulediff.process.process import record_in_process
from joulediff.process.request import Request, from_text, to_text
from process_builders import StageListener, is_alive

REQUEST = Request("program.py", RecordOptions(label="program", seconds=0.3, wait_s=0.0))
METERED = Run("program", "program.py", "2026-01-01T00:00:00+00:00", "0.1.0", passes=(Pass("metered", "done", 1.0),))
HEAD = """\
#!{python}
import os, signal, sys, time
from joulediff.process.protocol import Failure, Sender
fd = int(sys.argv[-2])
wire = open({wire!r}, "rb").read()
"""


@pytest.fixture
def child(tmp_path: Path) -> Callable[[str], Interpreter]:
    """Makes an interpreter that runs a body of the test instead of the program."""

    def write(body: str) -> Interpreter:
        (tmp_path / "wire").write_bytes(to_wire(METERED))
        path = tmp_path / "python"
        head = HEAD.format(python=sys.executable, wire=str(tmp_path / "wire"))
        path.write_text(head + textwrap.dedent(body))
        path.chmod(0o755)
        return Interpreter(str(path))

    return write


def ended(interpreter: Interpreter, listener: ProgressListener | None = None) -> tuple[JoulediffError, list[Run]]:
    """Return the error that a recording ends with, and the runs that were kept."""
    kept: list[Run] = []
    with pytest.raises(JoulediffError) as caught:
        record_in_process(REQUEST, interpreter=interpreter, keep=lambda each: kept.append(each.run), listener=listener)
    return caught.value, kept


def broken(name: PassName, why: str) -> Run:
    """Return the run that is kept after a metered pass if the next pass ends without a report."""
    return replace(METERED, passes=(*METERED.passes, Pass(name, "failed", 0.0, why)))


def test_a_complete_run(child: Callable[[str], Interpreter]) -> None:
    kept: list[Run] = []
    listener = StageListener()
    body = "s = Sender(fd); s.stage('metered 1/3: measuring', 0.4); s.run(wire); s.done()"
    run = record_in_process(
        REQUEST, interpreter=child(body), keep=lambda each: kept.append(each.run), listener=listener
    )
    assert run == METERED
    assert kept == [METERED]
    assert listener.stages[0] == "metered 1/3: measuring"


def test_an_end_after_the_last_message_does_not_matter(child: Callable[[str], Interpreter]) -> None:
    body = "s = Sender(fd); s.run(wire); s.done(); os.kill(os.getpid(), signal.SIGSEGV)"
    assert record_in_process(REQUEST, interpreter=child(body), keep=lambda _: None) == METERED


@pytest.mark.parametrize(
    ("last", "said", "advice"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL (captured 3/3)", "may have run out of memory"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV (captured 3/3)", "PYTHONFAULTHANDLER=1"),
        ("os._exit(7)", "ended its process with exit code 7 (captured 3/3)", "os._exit()"),
        ("os._exit(0)", "ended its process with exit code 0 (captured 3/3)", "os._exit()"),
        ("os.write(fd, b'an unexpected visitor'); time.sleep(60)", "lost contact with the program", "above 2"),
        ("os.closerange(3, 99); os._exit(75)", "lost contact with the program (captured 3/3)", "above 2"),
    ],
)
def test_a_child_that_dies_leaves_what_it_sent(
    child: Callable[[str], Interpreter], last: str, said: str, advice: str
) -> None:
    error, kept = ended(child(f"s = Sender(fd); s.run(wire); s.stage('captured 3/3', None, 'captured'); {last}"))
    assert isinstance(error, ProgramError)
    assert said in error.what
    assert advice in str(error.fix)
    assert error.exit_code == 1
    assert kept == [METERED, broken("captured", error.what)]


def test_a_child_that_dies_before_its_first_run_leaves_none(child: Callable[[str], Interpreter]) -> None:
    _, kept = ended(child("Sender(fd).stage('metered 1/3: warming up'); os._exit(3)"))
    assert kept == []


@pytest.mark.parametrize(
    ("passes", "stage", "added"),
    [
        ((Pass("metered", "partial", 1.0, "ValueError"),), "metered 1/3: measuring", ()),
        ((Pass("metered", "done", 1.0), Pass("traced", "failed", 1.0, "ValueError")), "traced 2/3: running", ()),
        ((Pass("metered", "done", 1.0), Pass("traced", "failed", 1.0, "no")), "captured 3/3: running", ("captured",)),
        (tuple(Pass(name, "done", 1.0) for name in get_args(PassName)), "captured 3/3: running", ()),
    ],
)
def test_only_a_pass_that_ended_without_a_report_is_added(
    child: Callable[[str], Interpreter], tmp_path: Path, passes: tuple[Pass, ...], stage: str, added: tuple[str, ...]
) -> None:
    interpreter = child(
        f"s = Sender(fd); s.stage({stage!r}, None, {stage.partition(' ')[0]!r}); s.run(wire); os._exit(3)"
    )
    (tmp_path / "wire").write_bytes(to_wire(replace(METERED, passes=passes)))
    _, kept = ended(interpreter)
    assert [each.name for each in kept[-1].passes[len(passes) :]] == list(added)


def test_a_run_that_cannot_be_kept_again_does_not_hide_why(child: Callable[[str], Interpreter]) -> None:
    def keep(recording: Snapshot) -> None:
        if recording.run != METERED:
            raise ArchiveError("the disk is full")

    with pytest.raises(ProgramError, match="exit code 3"):
        record_in_process(REQUEST, interpreter=child("Sender(fd).run(wire); os._exit(3)"), keep=keep)


def test_scratch_folders_of_a_killed_child_are_removed(
    child: Callable[[str], Interpreter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "joulediff-1-others").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    body = f"""
        os.makedirs(f"{scratch}/joulediff-{{os.getpid()}}-x1y2/inside")
        Sender(fd).run(wire)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended(child(body))
    assert [each.name for each in scratch.iterdir()] == ["joulediff-1-others"]


def test_a_child_that_hangs_without_a_pipe_is_ended(
    child: Callable[[str], Interpreter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulediff.process.process.END_S", 0.2)
    error, kept = ended(child("s = Sender(fd); s.run(wire); os.close(fd); time.sleep(60)"))
    assert "lost contact" in error.what
    assert kept == [METERED, broken("sampled", error.what)]


def test_a_program_that_does_not_end_after_its_recording_is_ended(
    child: Callable[[str], Interpreter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulediff.process.process.LINGER_S", 0.2)
    body = "s = Sender(fd); s.run(wire); s.done(); time.sleep(60)"
    assert record_in_process(REQUEST, interpreter=child(body), keep=lambda _: None) == METERED


def test_a_copy_that_holds_the_pipe_does_not_hold_the_parent(
    child: Callable[[str], Interpreter], tmp_path: Path
) -> None:
    body = f"""
        if (copy := os.fork()) == 0:
            time.sleep(600)
            os._exit(0)
        open({str(tmp_path / "copy")!r}, "w").write(str(copy))
        s = Sender(fd); s.run(wire); s.done()
    """
    assert record_in_process(REQUEST, interpreter=child(body), keep=lambda _: None) == METERED
    assert not is_alive(int((tmp_path / "copy").read_text()))


def test_half_a_message_is_none(child: Callable[[str], Interpreter]) -> None:
    error, kept = ended(child("s = Sender(fd); s.run(wire); os.write(fd, b'jd\\x02\\0\\0\\1\\0half'); os._exit(3)"))
    assert "exit code 3" in error.what
    assert kept == [METERED, broken("sampled", error.what)]


def test_a_run_that_cannot_be_read_ends_the_child(child: Callable[[str], Interpreter], tmp_path: Path) -> None:
    body = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); Sender(fd).run(b'{{}}'); time.sleep(60)"
    error, kept = ended(child(body))
    assert isinstance(error, ArchiveError)
    assert kept == []
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_failure_that_the_child_reports_is_raised(child: Callable[[str], Interpreter]) -> None:
    body = "Sender(fd).failed(Failure('error', 'the step raised X', 'mend it', exit_code=2, trace='in line 3'))"
    error, _ = ended(child(body))
    assert str(error) == "the step raised X\n  mend it"
    assert error.exit_code == 2
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in line 3" in str(error.__cause__)


def test_exceptions_of_the_program_have_a_class_of_their_own(child: Callable[[str], Interpreter]) -> None:
    error, _ = ended(child("Sender(fd).failed(Failure('raised', 'the step raised X', trace='in line 3'))"))
    assert isinstance(error, ProgramRaised)


def test_a_fault_of_ours_asks_for_a_report(child: Callable[[str], Interpreter]) -> None:
    error, _ = ended(child("Sender(fd).failed(Failure('fault', 'LookupError: a hole'))"))
    assert str(error).startswith("a fault in joulediff itself: LookupError: a hole\n  please report it")


def test_what_cannot_be_started(tmp_path: Path) -> None:
    error, kept = ended(Interpreter(str(tmp_path / "nope")))
    assert "cannot start" in error.what
    assert kept == []


def send_to_myself(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def test_ctrl_c_stops_the_child_and_keeps_what_it_sends(
    child: Callable[[str], Interpreter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulediff.process.guarded.terminal_signals_program", lambda: False)
    body = """
        s = Sender(fd)
        try:
            s.stage("measuring")
            time.sleep(60)
        except KeyboardInterrupt:
            s.run(wire)
            s.failed(Failure("stopped", "stopped"))
    """
    before = signal.getsignal(signal.SIGINT)
    error, kept = ended(child(body), StageListener("measuring", send_to_myself(signal.SIGINT)))
    assert isinstance(error, Stopped)
    assert error.exit_code == 130
    assert kept == [METERED, broken("sampled", "stopped")]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_of_a_terminal_is_not_sent_twice(
    child: Callable[[str], Interpreter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulediff.process.guarded.terminal_signals_program", lambda: True)
    body = "s = Sender(fd); s.stage('measuring'); time.sleep(0.5); s.run(wire); s.done()"
    listener = StageListener("measuring", send_to_myself(signal.SIGINT))
    assert record_in_process(REQUEST, interpreter=child(body), keep=lambda _: None, listener=listener) == METERED


def test_a_second_ctrl_c_kills(child: Callable[[str], Interpreter], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.process.guarded.terminal_signals_program", lambda: False)
    body = """
        signal.signal(signal.SIGINT, lambda *_: s.stage("again"))
        s = Sender(fd); s.run(wire); s.stage("measuring")
        time.sleep(60)
    """

    class Impatient(ProgressListener):
        def stage(self, text: str, share: float | None = None) -> None:
            if text in ("measuring", "again"):
                os.kill(os.getpid(), signal.SIGINT)

    error, kept = ended(child(body), Impatient())
    assert isinstance(error, Stopped)
    assert error.exit_code == 130
    assert kept == [METERED, broken("sampled", "stopped")]


@pytest.mark.parametrize("stubborn", [False, True])
def test_sigterm_ends_the_child_too(
    child: Callable[[str], Interpreter], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stubborn: bool
) -> None:
    monkeypatch.setattr("joulediff.process.guarded.END_S", 0.2)
    body = f"""
        if {stubborn}:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        s = Sender(fd); s.run(wire); s.stage("captured 3/3: running", None, "captured")
        time.sleep(60)
    """
    error, kept = ended(child(body), StageListener("captured 3/3: running", send_to_myself(signal.SIGTERM)))
    assert error.what == "ended by SIGTERM"
    assert error.exit_code == 143
    assert kept == [METERED, broken("captured", "ended by SIGTERM")]
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_request_is_the_same_on_the_other_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = RecordOptions(label="a ± label", seconds=2.5, wait_s=0.0, cpu_watts=3.0, cpp=True)
    asked = Request("p.py:other", options, ("--epochs", "3", "\udcff"))
    assert from_text(to_text(asked)) == asked


def test_files_of_meters_are_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Request("p.py", RecordOptions(meter="nvml, powerlog:wall.csv,scripted:/a/b.json,scripted"))
    expected = f"nvml,powerlog:{tmp_path}/wall.csv,scripted:/a/b.json,scripted"
    assert from_text(to_text(asked)).options.meter == expected
