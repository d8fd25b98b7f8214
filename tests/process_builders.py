"""What tests of a program's process share."""

from __future__ import annotations

import os
from collections.abc import Callable

from joulediff.model.progress import ProgressListener


class StageListener(ProgressListener):
    """Records every stage and calls `act` at the stage `text`, in the parent, while the child waits."""

    def __init__(self, text: str = "", act: Callable[[], None] | None = None) -> None:
        self.stages: list[str] = []
        self._text, self._act = text, act

    def stage(self, text: str, share: float | None = None) -> None:
        self.stages.append(text)
        if text == self._text and self._act is not None:
            self._act()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
