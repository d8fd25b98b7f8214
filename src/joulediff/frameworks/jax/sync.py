"""Waits for queued JAX work, through the arrays that a step returned.

An array that was donated to the next step cannot be waited for. A program that donates is waited for after each step
from then on.
"""

from __future__ import annotations

from collections.abc import Callable


class JaxSync:
    """Waits for the step's outputs. A step that returns nothing cannot be waited for."""

    def __init__(self) -> None:
        self._donates = False

    def mark(self, output: object) -> Callable[[], None]:
        import jax

        if self._donates:
            jax.block_until_ready(output)

        def wait() -> None:
            leaves = jax.tree_util.tree_leaves(output)
            alive = [leaf for leaf in leaves if not getattr(leaf, "is_deleted", lambda: False)()]
            self._donates |= len(alive) < len(leaves)
            jax.block_until_ready(alive)

        return wait
