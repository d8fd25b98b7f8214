"""A program that answers commands after its recording, over a pipe that may break at any moment."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulediff.archive.codec import to_plain
from joulediff.archive.snapshot import to_wire
from joulediff.frameworks.jobs import OWN, Job, JobCost, LiveProgram, Variant, VariantCost
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.options import RecordOptions
from joulediff.model.run import Pass, Run
from joulediff.process.client import RemoteProgram
from joulediff.process.exit_reasons import Stopped
from joulediff.process.interpreter import Interpreter
from joulediff.process.protocol import (
    MAX_ATTACHED,
    Answer,
    Commands,
    Disconnected,
    Inbox,
    InvalidMessage,
    Sender,
    to_command,
)
from joulediff.process.request import Request, from_text, to_text
from joulediff.process.server import answer_commands, wait_to_build, wait_to_start
from joulediff.process.verbs import VERBS, Payload
from joulediff.pysource.line_trace import LineTrace, Target, TraceLine
from joulediff.pysource.source_files import ProgramSource, SourceFile
from joulediff.session.live_program import LocalProgram
from process_builders import StageListener, is_alive
from run_builders import measurement

HEADER = struct.Struct("!2sBI")
RUN, ANSWER, ATTACHED = 2, 5, 6
REQUEST = Request("program.py", RecordOptions(label="program", seconds=0.3, wait_s=0.0), serve=True)
RECORDED = Run("program", "program.py", "2026-01-01T00:00:00+00:00", "0.1.0", passes=(Pass("metered", "done", 1.0),))
CHANGED = replace(RECORDED, label="changed")
JOB_COST = JobCost(Energy(1.0, 0.9, 1.1, "replayed"), 0.5, ("aten::mm",), 0.0)


def frame(kind: int, body: bytes) -> bytes:
    return HEADER.pack(b"jd", kind, len(body)) + body


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    """Read and write ends of two pipes: answers, commands. A test that closes one puts -1 there."""
    ends = [*os.pipe(), *os.pipe()]
    yield ends
    for fd in ends:
        if fd >= 0:
            os.close(fd)


def commands_of(pipes: list[int], *data: bytes) -> Commands:
    """Return the child's end of a pipe that holds these bytes and is closed after them."""
    for each in data:
        os.write(pipes[3], each)
    os.close(pipes[3])
    pipes[3] = -1
    return Commands(pipes[2])


def test_commands_arrive_as_they_were_sent(pipes: list[int]) -> None:
    sent = to_command({"do": "take_other", "n": 1}, [b"a run", b"another"]), to_command({"do": "end"})
    commands = commands_of(pipes, *sent)
    assert commands.next() == ({"do": "take_other", "n": 1}, [b"a run", b"another"])
    assert commands.next() == ({"do": "end"}, [])
    with pytest.raises(Disconnected):
        commands.next()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"jd",
        b"hello, this is no command",
        to_command({"do": "end"})[:-1],
        frame(RUN, b"a run and nothing more"),
        frame(ATTACHED, b"a run and nothing more"),
        frame(ATTACHED, b"a") + frame(RUN, b"b"),
        frame(ATTACHED, b"a") * (MAX_ATTACHED + 1) + frame(ANSWER, b"{}"),
        frame(ANSWER, b"{"),
        frame(ANSWER, b"[]"),
        frame(ANSWER, b"[" * 100_00),
        frame(ANSWER, b"\xff"),
        frame(1, b"{}"),
        frame(9, b"{}"),
        HEADER.pack(b"jd", ANSWER, (1 << 26) + 1) + b"{}",
    ],
)
def test_bytes_that_are_no_command_disconnect(pipes: list[int], data: bytes) -> None:
    with pytest.raises(Disconnected):
        commands_of(pipes, data).next()


def test_a_file_under_the_number_of_the_pipe_is_not_read(pipes: list[int], tmp_path: Path) -> None:
    commands = Commands(pipes[2])
    (tmp_path / "mine").write_bytes(to_command({"do": "end"}))
    with (tmp_path / "mine").open("rb") as file:
        os.dup2(file.fileno(), pipes[2])
        with pytest.raises(Disconnected):
            commands.next()
        assert os.lseek(pipes[2], 0, os.SEEK_CUR) == 0


def test_answers_arrive_as_they_were_sent(pipes: list[int]) -> None:
    Sender(pipes[1]).answer({"result": [1, "±", None]})
    assert list(Inbox().feed(os.read(pipes[0], 4096))) == [Answer({"result": [1, "±", None]})]


def test_runs_arrive_with_the_answer_that_they_belong_to(pipes: list[int]) -> None:
    sender = Sender(pipes[1])
    sender.answer({"result": 1}, [b"first", b"second"])
    sender.answer({"result": 2})
    assert list(Inbox().feed(os.read(pipes[0], 4096))) == [
        Answer({"result": 1}, (b"first", b"second")),
        Answer({"result": 2}),
    ]


@pytest.mark.parametrize(
    "data",
    [
        frame(ANSWER, b"{"),
        frame(ANSWER, b"\xff"),
        HEADER.pack(b"jd", ANSWER, 1 << 27),
        frame(ATTACHED, b"a") * (MAX_ATTACHED + 1),
    ],
)
def test_bytes_that_are_no_answer_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage):
        list(Inbox().feed(data))


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9)), st.binary(max_size=50))
def test_any_command_survives_the_pipe(command: dict[str, object], attached: bytes) -> None:
    ends = os.pipe()
    try:
        os.write(ends[1], to_command(command, [attached]))
        assert Commands(ends[0]).next() == (command, [attached])
    finally:
        for fd in ends:
            os.close(fd)


MEASURED = measurement()
TRACE = LineTrace("p.py", "forward", 3, ("return x",), (TraceLine(3, "return x", branch=False),), ())
TARGET = Target("p.py", "forward", 3)
JOB = Job(OWN, (1, 2), collect=(1, 2), settings={"torch.num_threads": 1})
SOURCE = ProgramSource("build", (SourceFile("", "p.py", "x = 'é'\n"),))
VARIANT = Variant(SOURCE.files, {"model.twice": False}, {"a": None}, {"b": 1})
# For each command of a program: the arguments of a call, as it is called there, and what it returns.
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any], Any]] = {
    "take_other": ((RECORDED,), {}, {"run": RECORDED}, None),
    "measure": ((), {"settings": {"a": True}}, {"seconds": None, "wait_s": None, "settings": {"a": True}}, MEASURED),
    "measure_without_sync": (
        ("p.py", 7),
        {"seconds": 2, "wait_s": 5.0},
        {"file": "p.py", "line": 7, "seconds": 2.0, "wait_s": 5.0},
        VariantCost(after=MEASURED.energy, after_s=0.5, difference=0.0, is_measured=True),
    ),
    "measure_job": ((JOB,), {"window_s": 0.3}, {"job": JOB, "window_s": 0.3, "as_other": False}, JOB_COST),
    "compare_job": ((JOB,), {}, {"job": JOB}, JOB_COST),
    "capture": (({"a": None},), {}, {"settings": {"a": None}}, ("changed1", CHANGED)),
    "export_tensors": (
        ((1, 2), [3], Path("/x/\udcff")),
        {},
        {"ops": (1, 2), "values": (3,), "path": Path("/x/\udcff")},
        None,
    ),
    "import_tensors": ((Path("/x/t"),), {}, {"path": Path("/x/t")}, None),
    "read_source": ((), {}, {}, SOURCE),
    "try_variant": (
        (VARIANT,),
        {"seconds": 1},
        {"variant": VARIANT, "seconds": 1.0},
        (VariantCost(difference=0.0, settings=("a",)), CHANGED),
    ),
    "trace_lines": ((TARGET,), {}, {"target": TARGET}, TRACE),
}


class Recorder:
    """A recorded program that logs each call and returns the result in `CALLS`, or raises `error` once."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.asked: list[Any] = []
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def called(**arguments: Any) -> Any:
            self.asked.append((name, arguments))
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            return CALLS[name][3]

        if name not in CALLS:
            raise AttributeError(name)
        return called


def served(pipes: list[int], program: Recorder, *commands: bytes) -> list[Any]:
    """Return the answers to commands, without the first, which reports that the program is recorded."""
    answer_commands(program, Sender(pipes[1]), commands_of(pipes, *commands))  # type: ignore[arg-type]
    messages = list(Inbox().feed(os.read(pipes[0], 1 << 20)))
    assert messages.pop(0) == Answer({"recorded": True})
    return [each.content if isinstance(each, Answer) else each for each in messages]


END = to_command({"do": "end"})
MEASURE_JOB: dict[str, object] = {"do": "measure_job", "job": to_plain(JOB), "window_s": 0.3, "as_other": False}


def test_both_kinds_of_program_have_every_command_with_the_same_signature() -> None:
    assert VERBS.keys() == CALLS.keys()
    for name in VERBS:
        declared = signature(getattr(LiveProgram, name))
        for kind in (LocalProgram, RemoteProgram):
            assert issubclass(kind, LiveProgram)
            assert name in vars(kind), f"{kind.__name__} has no {name} of its own"
            assert signature(getattr(kind, name)) == declared, (kind.__name__, name)


@pytest.mark.parametrize("name", CALLS)
def test_every_command_works_over_a_real_pipe(name: str, pipes: list[int]) -> None:
    args, options, arrives, result = CALLS[name]
    verb, program = VERBS[name], Recorder()
    message = verb.to_command(*args, **options)
    answer_commands(program, Sender(pipes[1]), commands_of(pipes, to_command(message.content, message.runs), END))  # type: ignore[arg-type]
    _, answer = Inbox().feed(os.read(pipes[0], 1 << 20))
    assert isinstance(answer, Answer) and isinstance(answer.content, dict)
    assert program.asked == [(name, arrives)]
    assert verb.read(Payload(answer.content["result"], answer.attached)) == result


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call[3] is not None])
def test_a_result_of_another_type_is_refused(name: str) -> None:
    for content in ("text", [], ["changed1", 3], {"joules": 1, "difference": "large"}):
        with pytest.raises(JoulediffError):
            VERBS[name].read(Payload(content, ()))


def test_a_program_is_asked_by_its_methods(child: Callable[[str], Interpreter]) -> None:
    body = """
        record()
        for _ in range(2):
            s.answer({"error": json.dumps(commands.next()[0])})
    """
    with RemoteProgram(REQUEST, interpreter=child(body), keep=lambda _: None) as program:
        program.wait_built()
        program.record()
        with pytest.raises(JoulediffError) as asked:
            program.export_tensors((1, 2), [3], Path("/x/t"))
        assert json.loads(asked.value.what) == {"do": "export_tensors", "ops": [1, 2], "values": [3], "path": "/x/t"}
        with pytest.raises(JoulediffError) as asked:
            program.import_tensors(Path("/x/t"))
        assert json.loads(asked.value.what) == {"do": "import_tensors", "path": "/x/t"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JoulediffError("no room", fix="less"), "no room"),
        (RuntimeError("no kernel"), "it raised RuntimeError: no kernel"),
    ],
)
def test_a_failed_command_is_answered_and_the_next_one_is_done(pipes: list[int], error: Exception, said: str) -> None:
    first, second = served(pipes, Recorder(error), to_command(MEASURE_JOB), to_command(MEASURE_JOB), END)
    assert first.keys() == {"error"}
    assert first["error"].startswith(said)
    assert second == {"result": to_plain(JOB_COST)}


def test_unknown_commands_are_answered_with_an_error(pipes: list[int]) -> None:
    words = [{"do": "dance"}, {}, {**MEASURE_JOB, "job": {"run": 3}}, {"do": "measure_job"}]
    answers = served(pipes, Recorder(), *(to_command(dict(each)) for each in words), END)
    assert [each.keys() for each in answers] == [{"error"}] * 4
    assert "dance" in answers[0]["error"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_the_end_of_the_program_is_not_answered(pipes: list[int], error: BaseException) -> None:
    with pytest.raises(type(error)):
        served(pipes, Recorder(error), to_command(MEASURE_JOB), END)


def test_the_end_of_the_parent_ends_the_loop(pipes: list[int]) -> None:
    with pytest.raises(Disconnected):
        served(pipes, Recorder(), to_command(MEASURE_JOB))


def test_idle_processes_do_not_count_as_load(pipes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[int] = []
    monkeypatch.setattr("joulediff.process.server.ignore_process", ignored.append)
    wait_to_start(Sender(pipes[1]), commands_of(pipes, to_command({"do": "start", "idle_pids": [7, 9]})))
    assert ignored == [7, 9]
    assert list(Inbox().feed(os.read(pipes[0], 4096))) == [Answer({"built": True})]


def test_a_program_that_is_not_wanted_any_more_is_not_recorded(pipes: list[int]) -> None:
    with pytest.raises(Disconnected):
        wait_to_start(Sender(pipes[1]), commands_of(pipes, END))


BUILD = to_command({"do": "build"})


def test_a_held_program_reports_ready_and_waits_to_build(pipes: list[int]) -> None:
    os.set_blocking(pipes[0], False)
    wait_to_build(Sender(pipes[1]), commands_of(pipes, BUILD))
    assert list(Inbox().feed(os.read(pipes[0], 4096))) == [Answer({"ready": True})]


@pytest.mark.parametrize("commands", [(), (END,), (to_command({"do": "start"}), BUILD), (to_command({}), BUILD)])
def test_a_held_program_builds_only_on_its_command(pipes: list[int], commands: tuple[bytes, ...]) -> None:
    with pytest.raises(Disconnected):
        wait_to_build(Sender(pipes[1]), commands_of(pipes, *commands))


@pytest.mark.parametrize("hold", [False, True])
def test_whether_to_hold_is_part_of_the_request(hold: bool) -> None:
    assert from_text(to_text(replace(REQUEST, hold=hold))).hold is hold
    assert not REQUEST.hold


HEAD = """\
#!{python}
import json, os, signal, sys, time
from joulediff.process.protocol import Commands, Disconnected, Failure, Sender
s, commands = Sender(int(sys.argv[-2])), Commands(int(sys.argv[-3]))
recorded, changed = (open(f"{folder}/" + name, "rb").read() for name in ("recorded", "changed"))
open(f"{folder}/pid" + str(os.getpid()), "w").close()
def record():
    s.answer({{"built": True}})
    commands.next()
    s.stage("metered 1/5: measuring")
    s.answer({{"metered": True}})
    commands.next()
    s.run(recorded)
    s.answer({{"recorded": True}})
"""


@pytest.fixture
def child(tmp_path: Path) -> Callable[[str], Interpreter]:
    """Makes an interpreter that runs a body of the test instead of the program."""

    def write(body: str) -> Interpreter:
        (tmp_path / "recorded").write_bytes(to_wire(RECORDED))
        (tmp_path / "changed").write_bytes(to_wire(CHANGED))
        path = tmp_path / f"python{len(list(tmp_path.iterdir()))}"
        path.write_text(HEAD.format(python=sys.executable, folder=tmp_path) + textwrap.dedent(body))
        path.chmod(0o755)
        return Interpreter(str(path))

    return write


def pids(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("pid")) for path in folder.glob("pid*")]


def test_a_program_is_recorded_and_answers_commands(child: Callable[[str], Interpreter], tmp_path: Path) -> None:
    body = f"""
        record()
        print(json.dumps(commands.next()[0]["do"]), file=open("{tmp_path}/asked", "w"), flush=True)
        s.answer({{"result": ["changed1", 0]}}, [changed])
        s.answer({{"error": "no room"}})
        commands.next()
        assert commands.next()[0] == {{"do": "end"}}
        open("{tmp_path}/ended", "w").close()
    """
    kept: list[Run] = []
    with RemoteProgram(REQUEST, interpreter=child(body), keep=lambda each: kept.append(each.run)) as program:
        program.wait_built()
        assert program.record([1]) == RECORDED
        assert program.is_live
        assert program.pid == pids(tmp_path)[0]
        assert program.capture({"a": True}) == ("changed1", CHANGED)
        assert program.run == RECORDED
        with pytest.raises(JoulediffError, match=r"^no room$"):
            program.measure_job(JOB, window_s=0.3)
    assert kept == [RECORDED], "what is captured for a try is not kept as the recording"
    assert json.loads((tmp_path / "asked").read_text()) == "capture"
    assert (tmp_path / "ended").exists()
    program.close()


def test_a_program_without_operators_does_not_stay(child: Callable[[str], Interpreter]) -> None:
    body = "s.answer({'built': True}); commands.next(); s.run(recorded); s.done()"
    with RemoteProgram(REQUEST, interpreter=child(body), keep=lambda _: None) as program:
        program.wait_built()
        assert program.record() == RECORDED
        assert not program.is_live


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("os._exit(7)", "ended its process with exit code 7"),
        ("s.failed(Failure('fault', 'a hole'))", "a fault in joulediff itself: a hole"),
        ("os.write(s._fd, b'an unexpected visitor'); time.sleep(60)", "lost contact with the program"),
    ],
)
def test_a_program_that_dies_during_a_command(child: Callable[[str], Interpreter], last: str, said: str) -> None:
    kept: list[Run] = []
    with RemoteProgram(
        REQUEST, interpreter=child(f"record(); commands.next(); {last}"), keep=lambda each: kept.append(each.run)
    ) as program:
        program.wait_built()
        program.record()
        with pytest.raises(JoulediffError, match=said):
            program.measure_job(JOB, window_s=0.3)
        for _ in range(2):  # each later command raises too
            with pytest.raises(ProgramError):
                program.take_other(RECORDED)
    assert kept == [RECORDED]


def test_a_command_raises_the_failure_that_the_program_reported(child: Callable[[str], Interpreter]) -> None:
    body = "record(); commands.next(); s.failed(Failure('raised', 'the step raised X'))"
    with RemoteProgram(REQUEST, interpreter=child(body), keep=lambda _: None) as program:
        program.wait_built()
        program.record()
        with pytest.raises(ProgramError, match="the step raised X"):
            program.measure(seconds=0.1, wait_s=0.0)


def test_a_pass_that_dies_is_kept_as_failed(child: Callable[[str], Interpreter]) -> None:
    first, last = "s.answer({'built': 1}); commands.next(); s.run(recorded)", "os._exit(3)"
    body = f"{first}; s.stage('traced 3/5: running', None, 'traced'); {last}"
    kept: list[Run] = []
    with RemoteProgram(REQUEST, interpreter=child(body), keep=lambda each: kept.append(each.run)) as program:
        program.wait_built()
        with pytest.raises(ProgramError, match="exit code 3"):
            program.record()
    assert [(each.name, each.status) for each in kept[-1].passes] == [("metered", "done"), ("traced", "failed")]


def test_ctrl_c_ends_both_programs(
    child: Callable[[str], Interpreter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulediff.process.guarded.terminal_signals_program", lambda: False)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    body = """
        try:
            record()
            commands.next()
        except KeyboardInterrupt:
            s.failed(Failure("stopped", "stopped"))
    """
    listener = StageListener("metered 1/5: measuring", lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Stopped) as caught, ExitStack() as stack:
        interpreter = child(body)
        first = stack.enter_context(
            RemoteProgram(REQUEST, interpreter=interpreter, keep=lambda _: None, listener=listener)
        )
        second = stack.enter_context(RemoteProgram(REQUEST, interpreter=interpreter, keep=lambda _: None))
        for program in (first, second):
            program.wait_built()
        first.record()
        first.measure_job(JOB, window_s=0.3)
    assert caught.value.exit_code == 130
    assert len(pids(tmp_path)) == 2
    assert not any(is_alive(pid) for pid in pids(tmp_path))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_programs_end_with_a_parent_that_goes_away(child: Callable[[str], Interpreter], tmp_path: Path) -> None:
    interpreter = child("record()\ntry:\n    commands.next()\nexcept Disconnected:\n    os._exit(75)\n")
    code = f"""
import os, signal
from joulediff.process.interpreter import Interpreter
from joulediff.process.request import Request
from joulediff.process.client import RemoteProgram
from joulediff.model.options import RecordOptions
request, interpreter = Request("p.py", RecordOptions()), Interpreter({interpreter.path!r})
with RemoteProgram(request, interpreter=interpreter, keep=print) as a:
    with RemoteProgram(request, interpreter=interpreter, keep=print) as b:
        a.wait_built(); b.wait_built(); a.record()
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    end_s = time.monotonic() + 30
    while any(is_alive(pid) for pid in pids(tmp_path)) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert len(pids(tmp_path)) == 2
    assert not any(is_alive(pid) for pid in pids(tmp_path))


def test_a_program_that_ignores_the_command_to_end_is_killed(
    child: Callable[[str], Interpreter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulediff.process.client.END_S", 0.2)
    with RemoteProgram(REQUEST, interpreter=child("record(); time.sleep(60)"), keep=lambda _: None) as program:
        program.wait_built()
        program.record()
    assert len(pids(tmp_path)) == 1
    assert not any(is_alive(pid) for pid in pids(tmp_path))


HELD = replace(REQUEST, hold=True)
READY = "s.stage('importing'); s.answer({'ready': True}); told = commands.next()[0]; s.stage('building')"


def test_a_program_that_is_held_builds_when_it_begins(child: Callable[[str], Interpreter], tmp_path: Path) -> None:
    body = f"""
        {READY}
        print(json.dumps(told), file=open("{tmp_path}/told", "w"), flush=True)
        record()
    """
    listener = StageListener()
    with RemoteProgram(HELD, interpreter=child(body), keep=lambda _: None, listener=listener) as program:
        program.begin()
        assert listener.stages == ["importing"]
        program.begin()
        program.wait_built()
        assert listener.stages == ["importing", "building"]
        assert program.record() == RECORDED
    assert json.loads((tmp_path / "told").read_text()) == {"do": "build"}


def test_waiting_for_a_held_program_lets_it_build(child: Callable[[str], Interpreter]) -> None:
    with RemoteProgram(
        HELD, interpreter=child(f"{READY}; assert told['do'] == 'build'; record()"), keep=print
    ) as program:
        program.wait_built()
        assert program.record() == RECORDED


def test_a_program_that_is_not_held_has_begun(child: Callable[[str], Interpreter], tmp_path: Path) -> None:
    body = f"""
        s.answer({{"built": True}})
        print(json.dumps(commands.next()[0]["do"]), file=open("{tmp_path}/told", "w"), flush=True)
        s.answer({{"metered": True}})
    """
    with RemoteProgram(REQUEST, interpreter=child(body), keep=print) as program:
        program.begin()
        program.wait_built()
        program.meter()
    assert json.loads((tmp_path / "told").read_text()) == "start"


def test_another_listener_can_be_set(child: Callable[[str], Interpreter]) -> None:
    first, second = StageListener(), StageListener()
    with RemoteProgram(HELD, interpreter=child(f"{READY}; record()"), keep=lambda _: None, listener=first) as program:
        program.begin()
        program.set_listener(second)
        program.wait_built()
        program.record()
    assert (first.stages, second.stages) == (["importing"], ["building", "metered 1/5: measuring"])


def test_a_held_program_that_is_not_wanted_is_ended(child: Callable[[str], Interpreter], tmp_path: Path) -> None:
    body = f"{READY}\nopen('{tmp_path}/built', 'w').close() if told['do'] == 'build' else None"
    with RemoteProgram(HELD, interpreter=child(body), keep=print):
        end_s = time.monotonic() + 30
        while not pids(tmp_path) and time.monotonic() < end_s:
            time.sleep(0.02)
    assert pids(tmp_path) and not any(is_alive(pid) for pid in pids(tmp_path))
    assert not (tmp_path / "built").exists()


def test_a_program_that_fails_before_it_builds_reports_why(child: Callable[[str], Interpreter]) -> None:
    body = "s.failed(Failure('raised', 'program.py raised ImportError: no such module'))"
    with (
        RemoteProgram(HELD, interpreter=child(body), keep=print) as program,
        pytest.raises(ProgramError, match="no such module"),
    ):
        program.begin()
