"""The bytes of tensors, and of data sets that are made of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def _tensor_bytes(tensor: torch.Tensor) -> int:
    import torch

    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return int(tensor.nbytes)
    # The class of a program may define what reading an attribute does.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
        return int(torch.Tensor.numel(tensor) * torch.Tensor.element_size(tensor))


def _dataset_bytes(dataset: Any) -> int:
    return sum(_tensor_bytes(each) for each in vars(dataset)["tensors"])


ARRAY_SIZES: Mapping[str, Callable[[Any], int | None]] = {
    "torch.Tensor": _tensor_bytes,
    "torch.utils.data.dataset.TensorDataset": _dataset_bytes,
}
