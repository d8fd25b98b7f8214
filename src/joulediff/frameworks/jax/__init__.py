"""JAX: programs can be measured, not recorded. Nothing here imports jax unless the program has imported it itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulediff.frameworks.framework import Framework

if TYPE_CHECKING:
    from joulediff.frameworks.sync import Sync


def _open_sync() -> Sync:
    from joulediff.frameworks.jax.sync import JaxSync

    return JaxSync()


FRAMEWORK = Framework(
    name="jax",
    libraries=("jax", "jaxlib"),
    packages={"flax": "flax", "jax": "jax", "jaxlib": "jaxlib"},
    variables=frozenset(
        """
        JAX_PLATFORMS JAX_PLATFORM_NAME JAX_ENABLE_X64 JAX_DISABLE_JIT JAX_DEFAULT_MATMUL_PRECISION
        JAX_NUMPY_DTYPE_PROMOTION JAX_NUMPY_RANK_PROMOTION JAX_DEBUG_NANS JAX_THREEFRY_PARTITIONABLE
        JAX_DISABLE_MOST_OPTIMIZATIONS XLA_FLAGS LIBTPU_INIT_ARGS XLA_PYTHON_CLIENT_PREALLOCATE
        XLA_PYTHON_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_ALLOCATOR XLA_CLIENT_MEM_FRACTION
        """.split()  # noqa: SIM905 - read as words
    ),
    open_sync=_open_sync,
)
