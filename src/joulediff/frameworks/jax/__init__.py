"""JAX: programs can be measured, not recorded. Nothing here imports jax unless the program has imported it itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joulediff.frameworks.framework import Framework


class JaxSync:
    """Waits for queued work through the arrays that a step returned; a step that returns nothing cannot be waited for.

    An array that was donated to the next step cannot be waited for either. A program that donates is waited for after
    each step from then on.
    """

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


def wait_for_all() -> None:
    """Wait until every array of the program is computed: there is no wait for a whole device."""
    import jax

    if hasattr(jax, "live_arrays"):  # missing while the package is being imported
        jax.block_until_ready([each for each in jax.live_arrays() if not each.is_deleted()])


def _array_bytes(array: Any) -> int:
    return int(array.nbytes)


def _traced_bytes(tracer: Any) -> int:
    return int(tracer.aval.size) * int(tracer.aval.dtype.itemsize)


FRAMEWORK = Framework(
    name="jax",
    libraries=("jax", "jaxlib"),
    apis={"jax": ("jax", "jaxlib")},
    api_names={
        "jaxlib._jax.ArrayImpl": "jax.Array",
        "jaxlib.xla_client.ArrayImpl": "jax.Array",
        "jaxlib.xla_extension.ArrayImpl": "jax.Array",
        "jaxlib._jax.PjitFunction": "jax.jit",
        "jaxlib.xla_extension.PjitFunction": "jax.jit",
        "jax._src.numpy.array_methods._IndexUpdateRef": "jax.Array.at",
    },
    array_sizes={
        "jaxlib._jax.ArrayImpl": _array_bytes,
        "jaxlib.xla_extension.ArrayImpl": _array_bytes,
        "jax._src.core.Tracer": _traced_bytes,
    },
    packages={"flax": "flax", "jax": "jax", "jaxlib": "jaxlib"},
    variables=frozenset(
        """
        JAX_PLATFORMS JAX_PLATFORM_NAME JAX_ENABLE_X64 JAX_DISABLE_JIT JAX_DEFAULT_MATMUL_PRECISION
        JAX_NUMPY_DTYPE_PROMOTION JAX_NUMPY_RANK_PROMOTION JAX_DEBUG_NANS JAX_THREEFRY_PARTITIONABLE
        JAX_DISABLE_MOST_OPTIMIZATIONS XLA_FLAGS LIBTPU_INIT_ARGS XLA_PYTHON_CLIENT_PREALLOCATE
        XLA_PYTHON_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_ALLOCATOR XLA_CLIENT_MEM_FRACTION
        """.split()  # noqa: SIM905 - read as words
    ),
    open_sync=JaxSync,
    wait_for_all=wait_for_all,
    training_calls=frozenset({"apply_gradients", "apply_updates", "value_and_grad"}),
)
