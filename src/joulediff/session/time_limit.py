"""Ends Python code that takes too long, with an exception in the main thread.

Code in C that never returns to the interpreter is not ended. The signal's handler and timer are restored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from joulediff.model.errors import JoulediffError


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise a JoulediffError that says `what` if the code within the context takes longer than `seconds`.

    There is no limit in another thread than the main one, on a system without timers, or beside a timer of the
    program.
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        yield
        return

    def stop(*_: object) -> None:
        raise JoulediffError(f"{what} in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
