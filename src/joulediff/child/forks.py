"""Ends forked copies of this process where they would come back from the program into our code.

A program may fork. Its copies are its own until they return from the step: from there on they would measure,
record and fork again. The process that is measured pays nothing for this, and the step stays the object it was.
"""

from __future__ import annotations

import inspect
import os
import sys
from types import FrameType

from joulediff.own import is_ours

# Its copies run their task and end; they never return to the code that forked.
_NEVER_RETURNS = f"{os.sep}multiprocessing{os.sep}popen_fork.py"


def end_copies() -> None:
    """From now on, end every forked copy that returns into this package."""
    os.register_at_fork(after_in_child=_watch_return)


def _watch_return() -> None:
    """Have the innermost frame of ours on the stack traced: its next line is where the copy comes back."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None and not is_ours(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith(_NEVER_RETURNS):
            return
        frame = frame.f_back
    if frame is not None:
        frame.f_trace = _leave
        sys.settrace(_look_away)


def _look_away(_: FrameType, __: str, ___: object) -> None:
    """Trace no new frame. Python asks the frames that are being traced only while there is such a function."""


def _leave(_: FrameType, __: str, ___: object) -> None:
    os._exit(0)
