"""When is asynchronous work done? A mark behind the queued work answers, without stopping the queue.

Only frameworks the program has imported are asked. Without one, work is done when the call returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol


class Fence(Protocol):
    """Marks the end of the work queued so far."""

    def mark(self, output: object) -> Callable[[], None]:
        """Return a function that waits for the work queued until now; `output` is what the step returned."""


class _AllFences:
    def __init__(self, fences: list[Fence]) -> None:
        self._fences = fences

    def mark(self, output: object) -> Callable[[], None]:
        waits = [fence.mark(output) for fence in self._fences]

        def wait() -> None:
            for each in waits:
                each()

        return wait


def open_fence() -> Fence | None:
    """Return the fence of the frameworks in use, or None where every call returns finished."""
    fences: list[Fence] = []
    if "torch" in sys.modules:
        from joulediff.frameworks.torch.sync import open_torch_fence

        fences += filter(None, [open_torch_fence()])
    if "jax" in sys.modules:
        from joulediff.frameworks.jax.sync import JaxFence

        fences.append(JaxFence())
    if "tensorflow" in sys.modules:
        from joulediff.frameworks.tensorflow.sync import open_tensorflow_fence

        fences += filter(None, [open_tensorflow_fence()])
    return _AllFences(fences) if fences else None
