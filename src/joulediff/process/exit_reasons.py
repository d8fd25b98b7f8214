"""Errors for a child that ended early: from the failure it reported, or from its exit code or signal."""

from __future__ import annotations

import signal

from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.process.protocol import LOST_CODE, Failure

_ADVICE: dict[int, str] = {
    signal.SIGKILL: "it may have run out of memory, which makes the system do this: give it a smaller input",
    signal.SIGSEGV: "it crashed outside of Python: PYTHONFAULTHANDLER=1 shows the line",
    signal.SIGABRT: "it crashed outside of Python: PYTHONFAULTHANDLER=1 shows the line",
    signal.SIGBUS: "it crashed outside of Python: PYTHONFAULTHANDLER=1 shows the line",
}


class Stopped(JoulediffError):
    """A signal asked for the end. `exit_code` is 128 plus the number of the signal."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(what)
        self.exit_code = 128 + number


class ProgramRaised(ProgramError):
    """The program raised an exception; `__cause__` has its traceback."""


class RemoteTraceback(Exception):
    """The traceback of an exception in the child, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def explain_failure(failure: Failure) -> JoulediffError:
    """Return the error for a failure that a child reported."""
    error: JoulediffError
    if failure.kind == "stopped":
        error = Stopped(failure.what, signal.SIGINT)
    elif failure.kind == "fault":
        error = JoulediffError(
            f"a fault in joulediff itself: {failure.what}", fix="please report it with the output of -vv"
        )
    else:
        sort = ProgramRaised if failure.kind == "raised" else ProgramError
        error = sort(failure.what, fix=failure.fix)
        error.exit_code = failure.exit_code
    error.out_of_memory = failure.out_of_memory
    error.__cause__ = RemoteTraceback(failure.trace)
    return error


def explain_exit(stage: str, code: int | None, asked: int | None) -> JoulediffError:
    """Return the error for a child that ended without a message.

    `stage` is the last one it reported, `code` its exit code (None if it had to be killed), `asked` the signal that
    asked for its end.
    """
    if asked is not None:
        return Stopped("stopped" if asked == signal.SIGINT else f"ended by {_name(asked)}", asked)
    where = f"({stage})"
    if code is None or code == LOST_CODE:
        return ProgramError(
            f"lost contact with the program {where}",
            fix="it closed file descriptors that it did not open, or wrote to them: leave those above 2 alone",
        )
    if code < 0:
        error = ProgramError(f"the program was killed by {_name(-code)} {where}", fix=_ADVICE.get(-code))
        error.out_of_memory = -code == signal.SIGKILL  # Linux kills the largest process when memory runs out
        return error
    return ProgramError(
        f"the program ended its process with exit code {code} {where}",
        fix="look for os._exit(), or for a library that calls exit()",
    )


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
