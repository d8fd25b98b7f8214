"""The parent's side: start the child process, keep each recording it sends, and explain its end.

The child can end at any moment. So the parent keeps each recording as it arrives, and if the child ends early, once
more with the reason. The parent never imports the program or a framework, and only waits while the child measures.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from joulediff.archive.snapshot import Snapshot
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.model.run import PASSES, Pass, PassName, Run
from joulediff.process.exit_reasons import explain_exit, explain_failure
from joulediff.process.interpreter import Interpreter
from joulediff.process.protocol import Done, Failure, Inbox, InvalidMessage, Message, RunSoFar, Stage
from joulediff.process.request import Request, to_text

# Time until the end of a child is noticed whose forked copies hold its pipe open. A wake-up takes microseconds.
POLL_S = 0.25
# Longest wait for a child to end that was asked to, or whose pipe is closed: only the program itself can delay that.
END_S = 5.0
# After its recording a program may still have threads to wait for and handlers to run at exit.
LINGER_S = 60.0
CHUNK_BYTES = 1 << 20

_SOURCE_ROOT = Path(__file__).resolve().parents[2]
_IMPORT_HOOK = Path(__file__).resolve().parent / "import_hook.py"
# `-c` leaves the program's standard input alone, and gives processes that it spawns no main module of ours.
_START = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
place = {}
with open(sys.argv[1]) as file:
    exec(compile(file.read(), sys.argv[1], "exec"), place)
place["install"](sys.argv[2])
from joulediff.process.main import main
main()
"""


def record_in_process(
    request: Request,
    *,
    interpreter: Interpreter,
    keep: Callable[[Snapshot], None],
    listener: ProgressListener | None = None,
) -> Run:
    """Return the record of a program that runs in a separate process.

    `keep` is called with the recording so far after each pass. Whatever ends the program early is raised as a
    `JoulediffError`, after the recording was kept with the current pass as failed.
    """
    received = ReceivedRecording(keep, listener or ProgressListener())
    try:
        return _receive_all(ChildProcess(interpreter, request), received)
    except JoulediffError as error:
        received.keep_failed(error.what)
        raise


def _receive_all(starting: ChildProcess, received: ReceivedRecording) -> Run:
    last: Message | None = None
    with starting as child:
        try:
            for last in child.messages():
                received.receive(last)
        except InvalidMessage:
            child.kill()
        if isinstance(last, Done):
            received.receive(Stage("recorded; waiting for the program to end"))
        code = child.wait(LINGER_S if isinstance(last, Done | Failure) else END_S)
    if isinstance(last, Done) and received.snapshot is not None:
        return received.snapshot.run
    if isinstance(last, Failure):
        raise explain_failure(last)
    raise explain_exit(received.stage, code, child.asked)


@dataclass(slots=True)
class ReceivedRecording:
    """The recording so far, and the stage that the child last reported."""

    keep: Callable[[Snapshot], None]
    listener: ProgressListener
    snapshot: Snapshot | None = None
    stage: str = "starting"
    pass_name: PassName | None = None

    def receive(self, message: Message) -> None:
        """Keep a recording, or report a stage."""
        if isinstance(message, RunSoFar):
            self.snapshot = Snapshot.from_wire(message.wire, since=self.snapshot)
            self.keep(self.snapshot)
        elif isinstance(message, Stage):
            self.stage = message.text
            if message.pass_name not in (None, self.pass_name):
                self.pass_name = message.pass_name
                self.listener.pass_begins(message.pass_name)
            self.listener.stage(message.text, message.share)

    def keep_failed(self, why: str) -> None:
        """Keep the recording once more, with the pass that failed and the reason."""
        if self.snapshot is None:
            return
        passes = self.snapshot.passes
        name = self._failed_pass(passes)
        if name is None:
            return
        self.snapshot = self.snapshot.changed(passes=(*passes, Pass(name, "failed", 0.0, why)))
        with suppress(JoulediffError):  # the error that is being raised matters more
            self.keep(self.snapshot)

    def _failed_pass(self, passes: Sequence[Pass]) -> PassName | None:
        """Return the pass that failed; None if the child itself reported it."""
        ended = {each.name for each in passes}
        missing = [name for name in PASSES if name not in ended]
        told = any(each.status != "done" for each in passes)
        return next((name for name in missing if name == self.pass_name), None if told or not missing else missing[0])


class ChildProcess:
    """A child process that runs a program; `with` starts and ends it."""

    def __init__(self, interpreter: Interpreter, request: Request) -> None:
        self.asked: int | None = None
        """The signal that asked the parent to end, if one did."""
        self._interpreter, self._request = interpreter, request
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._ended_itself = False
        self._overdue_s = float("inf")

    def __enter__(self) -> ChildProcess:
        self._fd, theirs = os.pipe()
        commands, self._commands_fd = os.pipe()
        sys.stdout.flush()
        # Before the child exists: a signal in between must not leave it behind.
        _signals.add(self)
        try:
            fds = (theirs, commands)
            self._process = subprocess.Popen(self._command(*fds), pass_fds=fds, env=self._environment())
        except OSError as error:
            self._close_pipes()
            why = error.strerror or str(error)
            raise JoulediffError(f"cannot start {self._interpreter.path} ({why})") from error
        finally:
            os.close(theirs)
            os.close(commands)
        if self.asked is not None:
            self.kill()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait(END_S)
        self._close_pipes()
        if not self._ended_itself:
            self._remove_scratch()

    def messages(self) -> Iterator[Message]:
        """Yield messages until the last one, or until the child ends or closes its end of the pipe."""
        inbox, is_told = Inbox(), False
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_S):
                    chunk = os.read(self._fd, CHUNK_BYTES)
                    if not chunk:
                        return
                    for message in inbox.feed(chunk):
                        self._ended_itself = isinstance(message, Done | Failure)
                        yield message
                        if self._ended_itself:
                            return
                elif self._exit_code() is not None:
                    return  # its forked copies hold the pipe open
                if self.asked is not None and not is_told:
                    is_told = True
                    yield Stage("stopping; Ctrl-C again ends it at once")
                if time.monotonic() > self._overdue_s:
                    self.kill()

    def wait(self, limit_s: float) -> int | None:
        """Return the exit code of the child; None if it had to be killed here."""
        assert self._process is not None
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        return None if self._killed else code

    def kill(self) -> None:
        """Kill the child if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._killed = True

    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def send(self, data: bytes) -> None:
        """Send a command. A child that has ended is noticed when no answer comes."""
        left = memoryview(data)
        with suppress(OSError):
            while left:
                left = left[os.write(self._commands_fd, left) :]

    def _command(self, fd: int, commands_fd: int) -> list[str]:
        provided = {name: [folder] for name, folder in self._interpreter.provided.items()}
        packages = {"first": {"joulediff": [str(_SOURCE_ROOT)]}, "fallback": provided}
        words = [str(_IMPORT_HOOK), json.dumps(packages), str(commands_fd), str(fd), to_text(self._request)]
        return [self._interpreter.path, "-c", _START, *words]

    def _environment(self) -> dict[str, str] | None:
        """Return the environment variables with those of a fix; None without a fix."""
        fix = {name.removeprefix("env."): v for name, v in self._request.fix.items() if name.startswith("env.")}
        if not fix:
            return None
        kept = {name: value for name, value in os.environ.items() if name not in fix}
        return kept | {name: str(value) for name, value in fix.items() if value is not None}

    def forward_signal(self, number: int) -> None:
        """Forward a signal to the child, and kill the child at the second one."""
        is_second, self.asked = self.asked is not None, self.asked or number
        if self._process is None:
            return
        if is_second:
            self.kill()
        elif number != signal.SIGINT:
            self._process.terminate()
            self._overdue_s = time.monotonic() + END_S
        elif not _terminal_signals_child():
            self._process.send_signal(number)

    def _remove_scratch(self) -> None:
        """Remove the scratch folders of a child that could not do so itself (the traced pass makes some)."""
        assert self._process is not None
        for folder in Path(tempfile.gettempdir()).glob(f"joulediff-{self._process.pid}-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _close_pipes(self) -> None:
        os.close(self._fd)
        os.close(self._commands_fd)
        _signals.remove(self)


class _Signals:
    """Forwards signals that ask the parent to end to all running children."""

    def __init__(self) -> None:
        self._children: list[ChildProcess] = []
        self._before: dict[int, Any] = {}

    def add(self, child: ChildProcess) -> None:
        self._children.append(child)
        if len(self._children) > 1:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)

    def remove(self, child: ChildProcess) -> None:
        self._children.remove(child)
        if not self._children:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _end(self, number: int, _: FrameType | None) -> None:
        for child in list(self._children):
            child.forward_signal(number)


_signals = _Signals()


def _terminal_signals_child() -> bool:
    """Return whether this process is in a terminal's foreground, so that the terminal signals the child too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
