"""Transfers tensors from one program to another through a file of plain bytes, with shapes and types before them.

The file is untrusted data: nothing in it is executed, and sizes are checked before memory is allocated.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from joulediff.frameworks.torch.trials.sequence import to_form
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Form

if TYPE_CHECKING:
    import torch

# Transferred tensors pass through host memory; the weights of a program are many times larger.
MAX_BYTES = 512 << 20
_MAX_HEADER = 1 << 20
_LENGTH = struct.Struct("<Q")
_BROKEN = "the tensors of the other program cannot be read"


def write_tensors(path: Path, tensors: Mapping[int, torch.Tensor]) -> None:
    """Write tensors by value number; raises JoulediffError if they are too large, or no plain tensors."""
    import torch

    if any(type(each) not in (torch.Tensor, torch.nn.Parameter) or each.is_quantized for each in tensors.values()):
        raise JoulediffError("it reads a tensor of a custom type that only the other program has")
    if any(each.layout != torch.strided for each in tensors.values()):
        raise JoulediffError("it reads a sparse tensor that only the other program has")
    size = sum(_count_bytes(tuple(each.shape), each.stride(), each.element_size()) for each in tensors.values())
    if size > MAX_BYTES:
        raise JoulediffError(f"it reads {size >> 20} MB that only the other program has")
    header = json.dumps([_describe(value, each) for value, each in tensors.items()]).encode()
    with path.open("wb") as file:
        file.write(_LENGTH.pack(len(header)))
        file.write(header)
        for each in tensors.values():
            plain = each.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            file.write(plain.view(torch.uint8).numpy().tobytes())


def read_tensors(path: Path) -> dict[int, torch.Tensor]:
    """Return the tensors of a file by value number, each on its device with its strides."""
    import torch

    try:
        with path.open("rb") as file:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            if length > _MAX_HEADER:
                raise JoulediffError(_BROKEN)
            entries = json.loads(file.read(length))
            left = path.stat().st_size - _LENGTH.size - length
            found = {}
            for entry in entries:
                form, device = _form_of(entry), torch.device(str(entry["device"]))
                each_bytes = _type_of(form).itemsize
                count = math.prod(form.shape) * each_bytes
                left -= count
                if left < 0 or _count_bytes(form.shape, form.strides, each_bytes) > MAX_BYTES:
                    raise JoulediffError(_BROKEN)
                flat = torch.frombuffer(bytearray(file.read(count)) or bytearray(1), dtype=torch.uint8)[:count]
                tensor = flat.view(_type_of(form)).reshape(form.shape).to(device)
                found[int(entry["value"])] = to_form(tensor, form)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, struct.error) as error:
        raise JoulediffError(_BROKEN) from error
    return found


def _describe(value: int, tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "value": value,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "device": str(tensor.device),
    }


def _form_of(entry: Mapping[str, Any]) -> Form:
    shape, strides = (tuple(int(each) for each in entry[name]) for name in ("shape", "strides"))
    if min((*shape, *strides), default=0) < 0 or len(shape) != len(strides):
        raise JoulediffError(_BROKEN)
    return Form(shape, strides, str(entry["dtype"]))


def _count_bytes(shape: Sequence[int], strides: Sequence[int], each: int) -> int:
    """Return the memory of a tensor, with its gaps, or as it is written."""
    count = math.prod(shape)
    span = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    return max(count, span) * each if count else 0


def _type_of(form: Form) -> torch.dtype:
    import torch

    found = getattr(torch, form.dtype, None)
    if not isinstance(found, torch.dtype):
        raise JoulediffError(_BROKEN)
    return cast("torch.dtype", found)
