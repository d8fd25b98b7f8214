"""A guard ends a program with all its processes, whoever is killed, and leaves no file behind."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from joulediff.process import guard
from joulediff.process.guarded import GuardedProgram
from process_builders import is_alive

# Long enough that nothing below ends by itself, and longer than a guard takes on a busy machine.
LONG_S, LIMIT_S = 600, 60.0
# Each program writes its id, and those of the processes that it starts, into files of this folder.
HEAD = f"""\
import ctypes, os, signal, subprocess, sys, time
def note(name, pid=None):
    with open("." + name, "w") as file:
        file.write(str(pid or os.getpid()))
    os.rename("." + name, name)
def sleep():
    time.sleep({LONG_S})
    os._exit(0)
"""
# A worker that outlives its parent, one in a session of its own, and one whose parent has ended.
FAMILY = """
if os.fork() == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note("worker.pid")
    sleep()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note("server.pid")
        sleep()
    os._exit(0)
os.wait()
note("program.pid")
sleep()
"""
STUBBORN = "for number in (2, 15, 1): signal.signal(number, signal.SIG_IGN)\n"
# The interpreter's lock is held: no handler and no thread of Python runs.
HOLDS_LOCK = f"note('program.pid')\nctypes.PyDLL(None).sleep({LONG_S})\n"
linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems find no process whose parent has ended")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[str], GuardedProgram]]:
    running: list[GuardedProgram] = []

    def run(body: str) -> GuardedProgram:
        program = GuardedProgram()
        running.append(program)
        program.start([sys.executable, "-c", HEAD + textwrap.dedent(body)], pass_fds=(), env=None)
        return program

    yield run
    for program in running:
        program.close()


def wait_until(is_done: Callable[[], bool]) -> bool:
    """Return whether something came true within the limit."""
    end_s = time.monotonic() + LIMIT_S
    while not is_done() and time.monotonic() < end_s:
        time.sleep(0.02)
    return is_done()


def pids(folder: Path) -> list[int]:
    return [int(each.read_text()) for each in folder.glob("*.pid")]


def wait_for(folder: Path, count: int) -> list[int]:
    assert wait_until(lambda: len(list(folder.glob("*.pid"))) == count)
    return pids(folder)


@pytest.mark.parametrize(("body", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 11)", -11), ("pass", 0)])
def test_a_program_ends_as_without_a_guard(start: Callable[[str], GuardedProgram], body: str, code: int) -> None:
    assert start(body).wait(LIMIT_S) == code


def test_the_id_is_that_of_the_program(start: Callable[[str], GuardedProgram], folder: Path) -> None:
    program = start("note('program.pid')")
    assert program.wait(LIMIT_S) == 0
    assert pids(folder) == [program.pid]


@linux
@pytest.mark.parametrize("end", ["sys.exit(0)", "os.kill(os.getpid(), 9)"])
def test_processes_that_a_program_leaves_are_ended(
    start: Callable[[str], GuardedProgram], folder: Path, end: str
) -> None:
    program = start(FAMILY.replace("\nsleep()\n", f"\n{end}\n"))
    program.wait(LIMIT_S)
    assert len(pids(folder)) == 3
    assert not any(map(is_alive, pids(folder)))


@linux
@pytest.mark.parametrize("body", [FAMILY, STUBBORN + FAMILY], ids=["willing", "stubborn"])
def test_a_program_that_is_killed_takes_its_processes_along(
    start: Callable[[str], GuardedProgram], folder: Path, body: str
) -> None:
    program = start(body)
    family = wait_for(folder, 3)
    program.kill()
    assert program.wait(LIMIT_S) is None
    assert not any(map(is_alive, family))


PARENT = """
import os, sys
from joulediff.process.guarded import GuardedProgram
program = GuardedProgram()
program.start([sys.executable, "-c", sys.argv[1]], pass_fds=(), env=None)
program.wait(None)
"""


@linux
@pytest.mark.parametrize("body", [FAMILY, STUBBORN + FAMILY, HOLDS_LOCK], ids=["willing", "stubborn", "holds the lock"])
def test_a_parent_that_is_killed_leaves_no_process(folder: Path, body: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, HEAD + body]) as parent:
        family = wait_for(folder, 1 if body is HOLDS_LOCK else 3)
        parent.kill()
    assert wait_until(lambda: not any(map(is_alive, family)))


@linux
@pytest.mark.parametrize("body", [FAMILY, STUBBORN + FAMILY, HOLDS_LOCK], ids=["willing", "stubborn", "holds the lock"])
@pytest.mark.parametrize("victim", ["outer", "inner"])
def test_a_guard_that_is_killed_ends_the_program(
    start: Callable[[str], GuardedProgram], folder: Path, body: str, victim: str
) -> None:
    program = start(body)
    family = wait_for(folder, 1 if body is HOLDS_LOCK else 3)
    guard = program._guard
    assert isinstance(guard, subprocess.Popen)
    os.kill(guard.pid if victim == "outer" else psutil.Process(program.pid).ppid(), signal.SIGKILL)
    code = program.wait(LIMIT_S)
    assert code == -signal.SIGKILL or (code == -signal.SIGTERM and victim == "outer")
    assert wait_until(lambda: not any(map(is_alive, family)))


def test_the_scratch_folders_of_a_killed_program_are_removed(
    start: Callable[[str], GuardedProgram], folder: Path
) -> None:
    (folder / "scratch" / "joulediff-1-others").mkdir()
    start('os.makedirs(f"scratch/joulediff-{os.getpid()}-x1y2/inside"); os.kill(os.getpid(), 9)').wait(LIMIT_S)
    assert [each.name for each in (folder / "scratch").iterdir()] == ["joulediff-1-others"]


def test_a_program_has_the_signals_of_a_new_process(
    start: Callable[[str], GuardedProgram], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """A shell starts `nohup joulediff` with SIGHUP ignored, and no other signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        # Python itself sets SIGINT and SIGPIPE when it starts, so another program must look.
        program = start("os.execvp('sh', ['sh', '-c', 'grep SigIgn /proc/self/status > found; true'])")
        assert program.wait(LIMIT_S) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    if sys.platform == "linux":
        ignored = int((folder / "found").read_text().split()[1], 16)
        assert ignored >> (signal.SIGHUP - 1) & 1
        assert not ignored >> (signal.SIGINT - 1) & 1
        assert not ignored >> (signal.SIGTERM - 1) & 1


def test_a_command_that_does_not_exist_is_refused(start: Callable[[str], GuardedProgram]) -> None:
    program = GuardedProgram()
    with pytest.raises(FileNotFoundError):
        program.start(["/nope/python"], pass_fds=(), env=None)
    program.close()


def test_the_standard_input_of_a_program_is_that_of_its_parent(folder: Path) -> None:
    body = "open('read', 'w').write(sys.stdin.readline())"
    subprocess.run([sys.executable, "-c", PARENT, HEAD + body], input=b"a line\n", check=True)
    assert (folder / "read").read_text() == "a line\n"


FORKS = """
import os, sys
from joulediff.process.guarded import GuardedProgram
program = GuardedProgram()
if program.fork():
    sys.exit(3 if program.wait(None) == -9 else 0)
exec(sys.argv[1])
"""


@linux
@pytest.mark.parametrize("victim", ["parent", "program"])
def test_a_process_can_continue_under_a_guard(folder: Path, victim: str) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKS, HEAD + FAMILY]) as parent:
        family = wait_for(folder, 3)
        os.kill(parent.pid if victim == "parent" else int((folder / "program.pid").read_text()), signal.SIGKILL)
        assert parent.wait(LIMIT_S) == (-signal.SIGKILL if victim == "parent" else 3)
    assert wait_until(lambda: not any(map(is_alive, family)))


# A first thread that ends while another one holds a child: the process is a zombie, and the parent of that child.
THREADS = """
import threading
def stay():
    if os.fork() == 0:
        note("worker.pid")
        sleep()
    note("program.pid")
    sleep()
threading.Thread(target=stay).start()
while not os.path.exists("program.pid"):
    time.sleep(0.01)
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="ends one thread by a number of Linux on x86"
)
def test_children_of_a_process_whose_first_thread_has_ended_are_found(
    start: Callable[[str], GuardedProgram], folder: Path
) -> None:
    program = start(THREADS)
    wait_for(folder, 2)
    worker = int((folder / "worker.pid").read_text())
    state = Path(f"/proc/{program.pid}/stat")
    assert wait_until(lambda: state.read_bytes().rpartition(b")")[2].split()[0] == b"Z")
    assert guard._processes_below(os.getpid()).count(worker) == 1
    assert program.pid not in guard._processes_below(os.getpid())
