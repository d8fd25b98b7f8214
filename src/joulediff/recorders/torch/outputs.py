"""The tensors in what a step returned, by name: `output.logits`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 8


def named_tensors(output: Any, name: str = "output", *, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each tensor in nested mappings, sequences and dataclasses, with its place."""
    import torch

    if isinstance(output, torch.Tensor):
        yield name, output
    elif depth < MAX_DEPTH:
        for label, part in _parts(output):
            yield from named_tensors(part, f"{name}.{label}", depth=depth + 1)


def _parts(output: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(output, Mapping):
        yield from ((str(key), part) for key, part in output.items())
    elif isinstance(output, tuple) and hasattr(output, "_fields"):
        yield from zip(output._fields, output, strict=True)
    elif isinstance(output, list | tuple):
        yield from ((str(i), part) for i, part in enumerate(output))
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        yield from ((f.name, getattr(output, f.name)) for f in dataclasses.fields(output))
