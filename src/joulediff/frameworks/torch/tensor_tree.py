"""Names the tensors in the return value of a step: `output.logits`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

MAX_DEPTH = 8
MAX_ITEMS = 4096
MAX_THINGS = 100_000
_FLATTEN = "__tensor_flatten__"


def named_tensors(output: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """Yield each tensor in nested mappings, sequences and objects, with its name; of a wrapper tensor its parts."""
    yield from _walk(output, name, 0, {})


def is_made_of_tensors(kind: type) -> bool:
    """Return whether tensors of a class only wrap others: an operator on them becomes operators on those."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    is_plain = kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # type: ignore[attr-defined]  # noqa: SLF001
    return hasattr(kind, _FLATTEN) or not (is_plain or issubclass(kind, FakeTensor))


def _walk(thing: Any, name: str, depth: int, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    import torch

    is_tensor = isinstance(thing, torch.Tensor)
    if is_tensor and not hasattr(thing, _FLATTEN):
        yield name, thing
    elif depth < MAX_DEPTH and id(thing) not in seen and len(seen) < MAX_THINGS:
        seen[id(thing)] = thing
        parts = _tensor_parts(thing) if is_tensor else _parts(thing)
        for label, part in islice(parts, MAX_ITEMS):
            yield from _walk(part, f"{name}.{label}", depth + 1, seen)


def _tensor_parts(tensor: Any) -> Iterator[tuple[str, Any]]:
    labels, _ = tensor.__tensor_flatten__()
    yield from ((label, getattr(tensor, label)) for label in labels)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(thing, Mapping):
        yield from ((str(key), part) for key, part in thing.items())
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        yield from zip(thing._fields, thing, strict=True)
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((str(i), part) for i, part in enumerate(thing))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from ((f.name, getattr(thing, f.name, None)) for f in dataclasses.fields(thing))
    elif not isinstance(thing, type | torch.nn.Module) and not callable(thing):
        # Such as a cache of keys and values: its tensors are returned as well.
        yield from getattr(thing, "__dict__", {}).items()
