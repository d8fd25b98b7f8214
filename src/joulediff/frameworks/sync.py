"""When is asynchronous work done? A mark behind the queued work answers, without stopping the queue.

Only frameworks the program has imported are asked. Without one, work is done when the call returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol


class Sync(Protocol):
    """Marks the end of the work queued so far."""

    def mark(self, output: object) -> Callable[[], None]:
        """Return a function that waits for the work queued until now; `output` is what the step returned."""


class _AllSyncs:
    def __init__(self, syncs: list[Sync]) -> None:
        self._syncs = syncs

    def mark(self, output: object) -> Callable[[], None]:
        waits = [sync.mark(output) for sync in self._syncs]

        def wait() -> None:
            for each in waits:
                each()

        return wait


def open_sync() -> Sync | None:
    """Return the fence of the frameworks in use, or None where every call returns finished."""
    syncs: list[Sync] = []
    if "torch" in sys.modules:
        from joulediff.frameworks.torch.sync import open_torch_sync

        syncs += filter(None, [open_torch_sync()])
    if "jax" in sys.modules:
        from joulediff.frameworks.jax.sync import JaxSync

        syncs.append(JaxSync())
    if "tensorflow" in sys.modules:
        from joulediff.frameworks.tensorflow.sync import open_tensorflow_sync

        syncs += filter(None, [open_tensorflow_sync()])
    return _AllSyncs(syncs) if syncs else None
