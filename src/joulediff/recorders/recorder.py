"""What the session asks of a framework: its settings, a traced pass and a captured one.

Each pass takes the run so far and returns it with what it found. Only frameworks that the program has
imported are asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from joulediff.runs import Run, Setting

Step = Callable[[], object]


class Recorder(Protocol):
    """Watches a step through its framework."""

    def seeded(self) -> AbstractContextManager[Callable[[], None]]:
        """Give a function that seeds all random numbers alike; the program's own come back at the end."""

    def settings(self) -> dict[str, Setting]:
        """Return every setting that may matter to energy."""

    def trace(self, run: Run, begin: Callable[[], None]) -> Run:
        """Run the step under the framework's profiler; add kernels and waits."""

    def capture(self, run: Run, begin: Callable[[], None]) -> Run:
        """Run the step with every operator in sight; add operators, values and call paths."""


def open_recorder(step: Step, *, names: object, root: Path, source: bool, cpp: bool) -> Recorder | None:
    """Return the recorder of the framework the program uses, or None without one.

    `names` is what to look through for the names of models and tensors: the user's own step.
    """
    if "torch" in sys.modules:
        from joulediff.recorders.torch.recorder import TorchRecorder

        return TorchRecorder(step, names=names, root=root, source=source, cpp=cpp)
    return None
