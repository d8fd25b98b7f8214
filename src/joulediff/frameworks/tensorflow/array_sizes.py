"""The bytes of tensors and variables, and of data sets whose number of elements is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

# Data sets that hand out the elements of another one, and other shapes of them.
_SAME_ELEMENTS = ("BatchDataset", "PrefetchDataset", "ShuffleDataset", "CacheDataset", "OptionsDataset")


def _tensor_bytes(tensor: Any) -> int | None:
    elements = tensor.shape.num_elements()
    return None if elements is None else int(elements) * int(tensor.dtype.size)


def _keras_bytes(variable: Any) -> int:
    bits = "".join(filter(str.isdigit, variable.dtype)) or "8"
    return int(prod(variable.shape)) * max(1, int(bits) // 8)


def _dataset_bytes(dataset: Any) -> int | None:
    import tensorflow as tf

    while type(dataset).__name__.endswith(_SAME_ELEMENTS):
        dataset = dataset._input_dataset  # noqa: SLF001
    count = int(dataset.cardinality().numpy())
    sizes = [_tensor_bytes(each) for each in tf.nest.flatten(dataset.element_spec)]
    if count < 0 or any(each is None for each in sizes):
        return None
    return count * sum(each for each in sizes if each is not None)


ARRAY_SIZES: Mapping[str, Callable[[Any], int | None]] = {
    "tensorflow.python.framework.tensor.Tensor": _tensor_bytes,
    "tensorflow.python.framework.ops.Tensor": _tensor_bytes,
    "tensorflow.python.ops.variables.Variable": _tensor_bytes,
    "keras.src.backend.common.variables.Variable": _keras_bytes,
    "tensorflow.python.data.ops.dataset_ops.DatasetV2": _dataset_bytes,
}
