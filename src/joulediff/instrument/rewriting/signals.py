"""Let Ctrl-C and other signals reach the program that arrive during a watched call.

Python runs the handler of a signal at the next Python code, which is ours at the end of a call: the interpreter is
freeing the `Call` there, and reports an exception of the handler instead of raising it. So the exception is raised once
more, by a signal, in the first line of the program that runs next.
"""

from __future__ import annotations

import _thread
import operator
import signal
import sys
import threading
import weakref
from typing import Any

from joulediff.instrument.rewriting.calls import Call, Gate

_PACKAGE = __name__.partition(".")[0]


def pass_signals_on(gate: Gate) -> None:
    """Raise in the program what a signal handler raised while a `Call` was freed, until the gate is closed."""
    previous = sys.unraisablehook

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if gate.is_closed or error is None or not _is_of_handler(error):
            previous(unraisable)
        else:
            # The variable is freed when this function has returned.
            at_return = _raise_at_release(error)  # noqa: F841

    sys.unraisablehook = report
    gate.at_close.append(lambda: _restore(report, previous))


def is_of_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the program raised an error: code that ignores errors of its own asks this.

    A handler gets the frame that it interrupted, which is the one before its own in the traceback.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in list(trace.tb_frame.f_locals.values()):
            if value is interrupted or (type(value) is tuple and any(each is interrupted for each in value)):
                return True
    return False


def _restore(ours: Any, previous: Any) -> None:
    if sys.unraisablehook is ours:
        sys.unraisablehook = previous


def _is_of_handler(error: BaseException) -> bool:
    """Return whether an exception was raised by a signal handler while a `Call` was freed."""
    trace = error.__traceback__
    if trace is None or trace.tb_frame.f_code is not Call.__del__.__code__:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "")
    return isinstance(error, KeyboardInterrupt) or not str(module).startswith(_PACKAGE)


class _Token:
    """An object to be freed."""

    __slots__ = ("__weakref__",)


class _InterruptAtRelease(weakref.ref[_Token]):
    __slots__ = ()
    interrupt = staticmethod(_thread.interrupt_main)


_waiting: list[_InterruptAtRelease] = []


def _raise_at_release(error: BaseException) -> _Token:
    """Return an object; when it is freed, the next line of the program raises the error.

    The signal is sent from C code that no Python code follows: its handler would run there otherwise.
    """
    previous = signal.getsignal(signal.SIGINT)
    if type(error) is not KeyboardInterrupt or previous is not signal.default_int_handler:
        trace = error.__traceback__
        rest = None if trace is None else trace.tb_next

        def raise_error(_number: int, _frame: object) -> None:
            signal.signal(signal.SIGINT, previous)
            raise error.with_traceback(rest)

        signal.signal(signal.SIGINT, raise_error)
    token = _Token()
    _waiting[:] = [_InterruptAtRelease(token, operator.methodcaller("interrupt"))]
    return token
