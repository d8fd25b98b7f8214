"""TensorFlow: programs can be measured, not recorded. Nothing here imports it unless the program has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from joulediff.frameworks.framework import Framework
from joulediff.frameworks.tensorflow.array_sizes import ARRAY_SIZES

if TYPE_CHECKING:
    from joulediff.frameworks.sync import Sync


def open_tensorflow_sync() -> Sync | None:
    """Return the synchronisation if TensorFlow sees a GPU, else None: only GPU work is queued."""
    import tensorflow as tf

    return _DeviceSync() if tf.config.list_logical_devices("GPU") else None


def wait_for_all() -> None:
    """Wait until every GPU has done its work; a CPU's is done when a call returns."""
    import tensorflow as tf

    if hasattr(tf, "test") and _has_gpus():  # missing while the package is being imported
        tf.test.experimental.sync_devices()


@cache
def _has_gpus() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


class _DeviceSync:
    """Waits for all devices: TensorFlow offers no other wait."""

    def mark(self, output: object) -> Callable[[], None]:  # noqa: ARG002 - waits for all devices
        import tensorflow as tf

        return tf.test.experimental.sync_devices  # type: ignore[no-any-return]


FRAMEWORK = Framework(
    name="tensorflow",
    libraries=("tensorflow", "keras"),
    # The library that a program imports by this name has the other one inside.
    apis={"tensorflow": ("tensorflow", "keras"), "keras": ("keras",)},
    api_names={
        # What `keras.Model(inputs, outputs)` returns; its first public base class is `keras.Function`.
        "keras.src.models.functional.Functional": "keras.Model",
        "tensorflow._api.v2": "tensorflow",
        "tensorflow.python.eager.polymorphic_function.polymorphic_function.Function": "tensorflow.function",
    },
    array_sizes=ARRAY_SIZES,
    packages={"keras": "keras", "tensorflow": "tensorflow"},
    variables=frozenset(
        """
        TF_XLA_FLAGS TF_ENABLE_ONEDNN_OPTS TF_NUM_INTEROP_THREADS TF_NUM_INTRAOP_THREADS TF_GPU_ALLOCATOR
        TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_THREAD_MODE TF_GPU_THREAD_COUNT TF_CUDNN_DETERMINISTIC
        TF_DETERMINISTIC_OPS TF_CUDNN_USE_AUTOTUNE TF_CUDNN_USE_FRONTEND TF_USE_CUBLASLT TF_USE_LEGACY_KERAS
        TF_ENABLE_AUTO_MIXED_PRECISION TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32
        TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32 TF_DISABLE_MKL KERAS_BACKEND
        """.split()  # noqa: SIM905 - read as words
    ),
    open_sync=open_tensorflow_sync,
    wait_for_all=wait_for_all,
    training_calls=frozenset({"GradientTape", "apply_gradients", "train_on_batch"}),
)
