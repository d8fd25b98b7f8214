"""Shapes, strides and grids as the short text `8,512,768`; a scalar's shape is empty text."""

from __future__ import annotations

import re

# PyTorch allows 64 dimensions (TensorIterator, `at::kMaxDims`), NumPy 64, XLA and TensorFlow fewer.
MAX_SIZES = 64
_SIZES = re.compile(rf"-?[0-9]{{1,19}}(?:,-?[0-9]{{1,19}}){{0,{MAX_SIZES - 1}}}")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the numbers in a text; raises ValueError where it holds anything else."""
    if not text:
        return ()
    if not _SIZES.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no list of up to {MAX_SIZES} sizes")
    sizes = tuple(map(int, text.split(",")))
    if not -(2**63) <= min(sizes) <= max(sizes) < 2**63:
        raise ValueError(f"{text[:40]!r} holds a size beyond 64 bits")
    return sizes
