"""JAX: programs can be measured, not recorded. Nothing here imports jax unless the program has imported it itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulediff.frameworks.framework import Framework

if TYPE_CHECKING:
    from joulediff.frameworks.sync import Sync


def _open_sync() -> Sync:
    from joulediff.frameworks.jax.sync import JaxSync

    return JaxSync()


FRAMEWORK = Framework(name="jax", libraries=("jax", "jaxlib"), open_sync=_open_sync)
