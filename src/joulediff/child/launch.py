"""The parent's side: start the child, keep what it sends, and say what became of it.

The child's end may come at any moment and in any way, so the parent keeps each run as it arrives. It never
imports the program or a framework, and does nothing while the child measures but wait.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from joulediff.archive import from_wire
from joulediff.child.endings import explain_failure, explain_silence
from joulediff.child.interpreter import Interpreter
from joulediff.child.pipe import Done, Failure, Garbled, Inbox, Message, RunSoFar, Stage
from joulediff.child.request import Request, to_text
from joulediff.errors import JoulediffError
from joulediff.runs import Run
from joulediff.stability.watch import Watch

# How soon the end of a child is seen whose forked copies hold its pipe open; it costs a wake-up of microseconds.
POLL_S = 0.25
# A child that has been told to end, or has nobody to talk to, ends at once unless the program prevents it.
END_S = 5.0
# After its recording a program may still have threads to wait for and handlers to run at exit.
LINGER_S = 60.0
CHUNK_BYTES = 1 << 20

_HOME = Path(__file__).resolve().parents[2]
_FINDER = Path(__file__).resolve().parent / "finder.py"
# `-c` leaves the program's standard input alone, and gives processes that it spawns no main module of ours.
_START = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
place = {}
with open(sys.argv[1]) as file:
    exec(compile(file.read(), sys.argv[1], "exec"), place)
place["install"](sys.argv[2])
from joulediff.child.main import main
main()
"""


def record_in_child(
    request: Request, *, interpreter: Interpreter, keep: Callable[[Run], None], watch: Watch | None = None
) -> Run:
    """Return the record of a program that runs in a process of its own.

    `keep` is called with the run so far after each pass. Whatever ends the program early is raised as a
    `JoulediffError`, after everything that arrived was kept.
    """
    watch, run, stage = watch or Watch(), None, "starting"
    last: Message | None = None
    with _Child(interpreter, request) as child:
        try:
            for last in child.messages():
                if isinstance(last, RunSoFar):
                    run = from_wire(last.wire)
                    keep(run)
                elif isinstance(last, Stage):
                    stage = last.text
                    watch.stage(stage, last.share)
        except Garbled:
            child.kill()
        if isinstance(last, Done):
            watch.stage("recorded; waiting for the program to end")
        code = child.wait(LINGER_S if isinstance(last, Done | Failure) else END_S)
    if isinstance(last, Done) and run is not None:
        return run
    if isinstance(last, Failure):
        raise explain_failure(last)
    raise explain_silence(stage, code, child.asked)


class _Child:
    """A running child, with the parent's signals while it runs."""

    def __init__(self, interpreter: Interpreter, request: Request) -> None:
        self.asked: int | None = None
        """The signal that asked for an end."""
        self._interpreter, self._request = interpreter, request
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._overdue_s = float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Child:
        self._fd, theirs = os.pipe()
        sys.stdout.flush()
        # Before there is a child: a signal that comes between must not leave one behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)
        try:
            self._process = subprocess.Popen(self._command(theirs), pass_fds=(theirs,))
        except OSError as error:
            self._let_go()
            why = error.strerror or str(error)
            raise JoulediffError(f"cannot start {self._interpreter.path} ({why})") from error
        finally:
            os.close(theirs)
        if self.asked is not None:
            self.kill()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait(END_S)
        self._let_go()

    def messages(self) -> Iterator[Message]:
        """Yield what the child says until its last word, or until it has ended or closed its end of the pipe."""
        inbox, told = Inbox(), False
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_S):
                    chunk = os.read(self._fd, CHUNK_BYTES)
                    if not chunk:
                        return
                    for message in inbox.feed(chunk):
                        yield message
                        if isinstance(message, Done | Failure):
                            return
                elif self._code() is not None:
                    return  # copies of it hold the pipe open
                if self.asked is not None and not told:
                    told = True
                    yield Stage("stopping; Ctrl-C again ends it at once")
                if time.monotonic() > self._overdue_s:
                    self.kill()

    def wait(self, limit_s: float) -> int | None:
        """Return the status of the child; None where it had to be killed here."""
        assert self._process is not None
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        return None if self._killed else code

    def kill(self) -> None:
        """End the child now, if it has not ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._killed = True

    def _code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _command(self, fd: int) -> list[str]:
        lent = {name: [folder] for name, folder in self._interpreter.lent.items()}
        wiring = {"own": {"joulediff": [str(_HOME)]}, "lent": lent}
        words = [str(_FINDER), json.dumps(wiring), str(fd), to_text(self._request)]
        return [self._interpreter.path, "-c", _START, *words]

    def _end(self, number: int, _: FrameType | None) -> None:
        """Pass a request to end on to the child; kill it when the request comes again."""
        again, self.asked = self.asked is not None, self.asked or number
        if self._process is None:
            return
        if again:
            self.kill()
        elif number != signal.SIGINT:
            self._process.terminate()
            self._overdue_s = time.monotonic() + END_S
        elif not _terminal_tells_all():
            self._process.send_signal(number)

    def _let_go(self) -> None:
        os.close(self._fd)
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _terminal_tells_all() -> bool:
    """Return whether a Ctrl-C came from a terminal, which sends it to the child as well."""
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
