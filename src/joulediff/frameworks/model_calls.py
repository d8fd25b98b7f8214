"""The protocol for counting the calls of models while a script runs, to find the loop that uses one."""

from __future__ import annotations

from typing import Protocol


class ModelCalls(Protocol):
    """Counts calls of models until it is closed."""

    calls: int
    """Calls that no other model made."""

    @property
    def is_inside(self) -> bool:
        """Whether a model is being called now."""

    def close(self) -> None:
        """Count no longer."""
