"""Waiting for asynchronous work: a mark is queued behind the work and waited for, while more work can be queued.

Only frameworks that the program has imported are asked. Without one, work is done when the call returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from joulediff.frameworks.framework import loaded_frameworks


class Sync(Protocol):
    """Marks the end of the work queued so far."""

    def mark(self, output: object) -> Callable[[], None]:
        """Return a function that waits for the work queued until now; `output` is the step's return value."""


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
    """Return the synchronisation of the frameworks in use, or None if every call returns after its work is finished."""
    opened = [each.open_sync() for each in loaded_frameworks() if each.open_sync is not None]
    syncs = [sync for sync in opened if sync is not None]
    return _AllSyncs(syncs) if syncs else None


def wait_for_queued_work() -> None:
    """Wait until the devices have done all work that the program has queued. Quick if it uses none."""
    global _loaded
    count = len(sys.modules)
    if count != _loaded[0]:  # looking for frameworks takes longer than a short call
        waits = [each.wait_for_all for each in loaded_frameworks() if each.wait_for_all is not None]
        _loaded = (count, tuple(waits))
    for wait in _loaded[1]:
        wait()


_loaded: tuple[int, tuple[Callable[[], None], ...]] = (0, ())
