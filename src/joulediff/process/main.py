"""The child's side: build the program, record it, and report to the parent.

It runs in the user's environment, where only numpy, psutil and scipy are needed. The program has the process to itself:
joulediff adds no thread but the one that reads the meters, and leaves standard streams and signals to the program.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from joulediff.measuring.freed_memory import keep_freed_memory
from joulediff.model.errors import OUT_OF_MEMORY, JoulediffError, full_disk, is_out_of_memory
from joulediff.model.progress import ProgressListener
from joulediff.model.run import PassName, Run
from joulediff.process.protocol import LOST_CODE, Commands, Disconnected, Failure, Sender
from joulediff.process.request import PACKAGES, Request, file_of, from_text
from joulediff.pysource.code_owner import is_ours
from joulediff.pysource.programs import Step, UserCodeFailed, describe, load_builder, load_step

if TYPE_CHECKING:
    from joulediff.archive.snapshot import Snapshot


class ProgressSender(ProgressListener):
    """Sends stages and recordings to the parent, and keeps the exception that the step raised."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.sent: Snapshot | None = None
        self.failure: tuple[BaseException, str] | None = None
        """The exception that the step raised, and its call."""
        self._pass: PassName | None = None

    def pass_begins(self, name: PassName) -> None:
        self._pass = name

    def stage(self, text: str, share: float | None = None) -> None:
        self.sender.stage(text, share, self._pass)

    def failed(self, error: BaseException, call: int) -> None:
        where = f"call number {call} of the {self._pass} pass" if self._pass else f"its call number {call}"
        self.failure = (error, where)

    def checkpoint(self, run: Run) -> None:
        from joulediff.archive.snapshot import Snapshot

        found = Snapshot.of(run, since=self.sent)
        self.sender.run(found.to_wire(since=self.sent))
        self.sent = found


def main() -> None:
    """Record the program that `sys.argv` names, and exit."""
    commands_fd, fd, text = sys.argv[-3:]
    request, sender, commands = from_text(text), Sender(int(fd)), Commands(int(commands_fd))
    sys.argv[:] = [file_of(request.program), *request.arguments]
    end_forked_copies()
    keep_freed_memory()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_once)
    try:
        sys.exit(_run(request, sender, commands))
    except Disconnected:
        sys.exit(LOST_CODE)


def _run(request: Request, sender: Sender, commands: Commands) -> int:
    progress = ProgressSender(sender)
    try:
        sender.stage("building the program")
        _load_joulediff()
        _record(request, progress, commands if request.serve else None)
        sender.done()
    except Disconnected:
        raise
    except BaseException as error:  # noqa: BLE001 - the parent explains any end of the program
        failure = _explain(error, progress)
        sender.failed(failure)
        return 130 if failure.kind == "stopped" else failure.exit_code
    return 0


def _load_joulediff() -> None:
    """Import the modules that recording needs, before the program can change `sys.path`."""
    try:
        for name in ("scipy.special", "joulediff.archive.snapshot", "joulediff.session.record"):
            importlib.import_module(name)
    except ImportError as error:
        raise JoulediffError(
            f"joulediff cannot run under {sys.executable}: {error}",
            fix=f"{sys.executable} -m pip install --upgrade {' '.join(PACKAGES)}",
        ) from error


def _record(request: Request, progress: ProgressSender, commands: Commands | None) -> None:
    from joulediff.frameworks.framework import watch_program
    from joulediff.frameworks.recorder import fixed_step
    from joulediff.process.server import answer_commands, measure_in_turns, wait_to_build, wait_to_start
    from joulediff.session.loop_step import use_loop
    from joulediff.session.record import record_step

    root = Path.cwd()  # building the program may change it
    watch_program()

    def record_built(step: Step, *notes: str) -> None:
        if request.fix:
            step = fixed_step(step, lambda: _build_again(request), request.fix)
        idle = None if commands is None else wait_to_start(progress.sender, commands)
        run = record_step(
            step,
            request.options,
            program=request.program,
            root=root,
            checkpoint=progress.checkpoint,
            listener=progress,
            between=None if commands is None else lambda again: measure_in_turns(again, progress.sender, commands),
            then=None if commands is None else lambda program: answer_commands(program, progress.sender, commands),
            idle=idle,
            notes=notes,
        )
        if progress.sent is None or run is not progress.sent.run:
            progress.checkpoint(run)

    options = request.options
    build = None if options.loop is not None else load_builder(request.program, is_step=options.is_step)
    if request.hold and commands is not None:
        wait_to_build(progress.sender, commands)
    if build is not None:
        record_built(build())
    elif options.loop is not None:
        progress.sender.stage("running the script up to its loop")
        use_loop(request.program, request.arguments, where=options.loop, after=options.loop_after, use=record_built)


def _build_again(request: Request) -> Step:
    from joulediff.session.loop_step import NOT_BUILT_AGAIN

    if request.options.loop is not None:
        raise JoulediffError(NOT_BUILT_AGAIN)
    return load_step(request.program, is_step=request.options.is_step)


def _raise_once(_: int, __: FrameType | None) -> None:
    """Raise at the first Ctrl-C and ignore others, so that the recording is still sent (the parent kills then)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _explain(error: BaseException, progress: ProgressSender) -> Failure:
    trace = "".join(traceback.format_exception(error))
    no_memory = is_out_of_memory(error) or is_out_of_memory(error.__cause__)
    if isinstance(error, KeyboardInterrupt):
        return Failure("stopped", "stopped", trace=trace)
    if progress.failure is not None and progress.failure[0] is error and not _raised_here(error):
        what = f"the step raised {describe(error)} in {progress.failure[1]}"
        return Failure("raised", what, _advice_for(error), trace=trace, out_of_memory=no_memory)
    if isinstance(error, UserCodeFailed):
        fix = error.fix or _advice_for(error.__cause__)
        return Failure("raised", error.what, fix, trace=trace, out_of_memory=no_memory)
    if isinstance(error, JoulediffError):
        code = error.exit_code
        return Failure("error", error.what, error.fix, exit_code=code, trace=trace, out_of_memory=no_memory)
    full = full_disk(error)
    if full is not None:
        return Failure("error", full.what, full.fix, trace=trace)
    return Failure("fault", describe(error), trace=trace, out_of_memory=no_memory)


def _raised_here(error: BaseException) -> bool:
    """Return whether an exception was raised in joulediff itself, whose hooks a step runs through."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and is_ours(frames[-1].filename)


def _advice_for(error: BaseException | None) -> str | None:
    if isinstance(error, StopIteration):
        return (
            "each repeat of the step takes from an iterator, and it has ended: for the body of a loop, "
            "mark the part after next() with joulediff.step()"
        )
    if type(error).__name__ not in OUT_OF_MEMORY:
        return None
    return "it ran out of memory: give it a smaller input, or end other programs that hold memory of the device"


# Processes that multiprocessing forks end after their task; they never return to the code that forked.
_NEVER_RETURNS = f"{os.sep}multiprocessing{os.sep}popen_fork.py"


def end_forked_copies() -> None:
    """End every forked copy of this process that returns into this package, from now on."""
    os.register_at_fork(after_in_child=_trace_return)


def _trace_return() -> None:
    """Trace the innermost frame of joulediff on the stack: its next line runs when the copy returns."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None and not is_ours(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith(_NEVER_RETURNS):
            return
        frame = frame.f_back
    if frame is not None:
        frame.f_trace = _exit_copy
        sys.settrace(_trace_nothing)


def _trace_nothing(_: FrameType, __: str, ___: object) -> None:
    """Trace no new frame. Python calls `f_trace` of a frame only while a trace function is set."""


def _exit_copy(_: FrameType, __: str, ___: object) -> None:
    os._exit(0)
