"""The parent's side: start the child process, keep each recording it sends, and explain its end.

The child can end at any moment. So the parent keeps each recording as it arrives, and if the child ends early, once
more with the reason. The parent never imports the program or a framework, and only waits while the child measures.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from joulediff.archive.snapshot import Snapshot
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.model.run import PASSES, Pass, PassName, Run, Setting
from joulediff.process.exit_reasons import Stopped, explain_exit, explain_failure
from joulediff.process.guarded import END_S, GuardedProgram
from joulediff.process.interpreter import Interpreter
from joulediff.process.kept_output import KeptOutput
from joulediff.process.protocol import Done, Failure, Inbox, InvalidMessage, Message, RunSoFar, Stage
from joulediff.process.request import Request, to_text

# Time until the end of a child is noticed whose forked copies hold its pipe open. A wake-up takes microseconds.
POLL_S = 0.25
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
from importlib import import_module
import_module(sys.argv[3]).main()
"""


_RECORDER = "joulediff.process.main"


class ChildRequest(Protocol):
    """What a child process of any kind is asked."""

    @property
    def quiet(self) -> bool:
        """Whether nothing that the program prints is shown."""

    @property
    def fix(self) -> Mapping[str, Setting]:
        """Settings of the program to change; those of the environment begin with `env.`."""


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
        return _receive_all(ChildProcess(interpreter, request, to_text(request)), received)
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
            child.program.kill()
        if isinstance(last, Done):
            received.receive(Stage("recorded; waiting for the program to end"))
        code = child.wait(LINGER_S if isinstance(last, Done | Failure) else END_S)
        if isinstance(last, Done) and received.snapshot is not None:
            return received.snapshot.run
        raise child.explain_end(last, received.stage, code)


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

    def __init__(self, interpreter: Interpreter, request: ChildRequest, text: str, *, entry: str = _RECORDER) -> None:
        """Prepare a child that runs `main()` of the module `entry`; `text` is the request as that module reads it."""
        self._interpreter, self._request, self._text, self._entry = interpreter, request, text, entry
        self._program: GuardedProgram | None = None
        self._output: KeptOutput | None = None

    def __enter__(self) -> ChildProcess:
        self._fd, theirs = os.pipe()
        commands, self._commands_fd = os.pipe()
        sys.stdout.flush()
        self._program = GuardedProgram()
        self._output = KeptOutput() if self._request.quiet else None
        try:
            fds = (theirs, commands)
            output = None if self._output is None else self._output.fileno()
            self._program.start(self._command(*fds), pass_fds=fds, env=self._environment(), output=output)
        except OSError as error:
            self._close()
            why = error.strerror or str(error)
            raise JoulediffError(f"cannot start {self._interpreter.path} ({why})") from error
        finally:
            os.close(theirs)
            os.close(commands)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def program(self) -> GuardedProgram:
        """The program, once it is started."""
        assert self._program is not None
        return self._program

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
                        yield message
                        if isinstance(message, Done | Failure):
                            return
                elif self.program.poll() is not None:
                    return  # its forked copies hold the pipe open
                if self.program.asked is not None and not is_told:
                    is_told = True
                    yield Stage("stopping; Ctrl-C again ends it at once")
                if time.monotonic() > self.program.overdue_s:
                    self.program.kill()

    def wait(self, limit_s: float) -> int | None:
        """Return the exit code of the child; None if it had to be killed here."""
        return self.program.wait(limit_s)

    def explain_end(self, last: Message | None, stage: str, code: int | None) -> JoulediffError:
        """Return the error for a child that ended early: `last` is its last message, `stage` its last stage."""
        error = explain_failure(last) if isinstance(last, Failure) else explain_exit(stage, code, self.program.asked)
        if self._output is not None and not isinstance(error, Stopped):
            error.output = self._output.last_lines()
        return error

    def send(self, data: bytes) -> None:
        """Send a command. A child that has ended is noticed when no answer comes."""
        left = memoryview(data)
        with suppress(OSError):
            while left:
                left = left[os.write(self._commands_fd, left) :]

    def _command(self, fd: int, commands_fd: int) -> list[str]:
        provided = {name: [folder] for name, folder in self._interpreter.provided.items()}
        packages = {"first": {"joulediff": [str(_SOURCE_ROOT)]}, "fallback": provided}
        words = [str(_IMPORT_HOOK), json.dumps(packages), self._entry, str(commands_fd), str(fd), self._text]
        return [self._interpreter.path, "-c", _START, *words]

    def _environment(self) -> dict[str, str] | None:
        """Return the environment variables with those of a fix; None without a fix."""
        fix = {name.removeprefix("env."): v for name, v in self._request.fix.items() if name.startswith("env.")}
        if not fix:
            return None
        kept = {name: value for name, value in os.environ.items() if name not in fix}
        return kept | {name: str(value) for name, value in fix.items() if value is not None}

    def _close(self) -> None:
        self.program.close()
        os.close(self._fd)
        os.close(self._commands_fd)
        if self._output is not None:
            self._output.__exit__()
