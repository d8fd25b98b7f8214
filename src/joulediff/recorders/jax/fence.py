"""The end of queued JAX work: the arrays a step returned say when they are ready."""

from __future__ import annotations

from collections.abc import Callable


class JaxFence:
    """Waits for the step's outputs. A step that returns nothing cannot be waited for."""

    def mark(self, output: object) -> Callable[[], None]:
        import jax

        def wait() -> None:
            jax.block_until_ready(output)

        return wait
