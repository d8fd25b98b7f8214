"""Sign a tensor when it is produced: counts, extremes and power sums, in double precision, in one pass.

Signing reads the data where it lies and keeps no reference to it. The order of elements does not
matter, so a dense tensor is read as its memory lies, and one with gaps row by row. On CUDA the sums stay
on the device until `finish`: no signature waits for another.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from joulediff.recorders.torch.geometry import Extent, extent_of
from joulediff.runs import Signature

if TYPE_CHECKING:
    import torch

# The columns of a row of partial results, on every device.
SUMS = ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
COUNTS = ("nans", "positive_infs", "negative_infs", "zeros", "fractions")
LOW, HIGH = len(SUMS), len(SUMS) + 1
NANS, UPS, DOWNS, ZEROS, FRACTIONS = range(HIGH + 1, HIGH + 1 + len(COUNTS))
WIDTH = FRACTIONS + 1

# Elements converted to double at a time on the CPU: four such blocks fit a core's second-level cache.
BLOCK = 32768


class Signer(Protocol):
    """Signs the tensors of one kind of device."""

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        """Return a function that gives the signature of `tensor` as it is now; call it after `finish`."""

    def finish(self) -> None:
        """Fetch what is still on the device."""


class Signers:
    """The signer of each device, opened when first needed; signatures are numbered as they are asked for."""

    def __init__(self) -> None:
        self._signers: dict[str, Signer] = {}
        self._promises: list[Callable[[], Signature]] = []

    def sign(self, tensor: torch.Tensor, extent: Extent) -> int | None:
        """Return the number of the signature of `tensor`; None for a kind of tensor that cannot be read."""
        kind = tensor.device.type
        if kind not in self._signers:
            self._signers[kind] = _open_signer(kind)
        flat = as_elements(tensor)
        if flat is None:
            return None
        if flat is not tensor:
            extent = extent_of(flat.shape, flat.stride())
        self._promises.append(self._signers[kind].sign(flat, extent))
        return len(self._promises) - 1

    def finish(self) -> list[Signature]:
        """Return all signatures, by number."""
        for signer in self._signers.values():
            signer.finish()
        return [promise() for promise in self._promises]


def as_elements(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor with real elements: complex ones as pairs; None if it has no plain memory."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return None
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor


def _open_signer(kind: str) -> Signer:
    if kind == "cpu":
        return _PlainSigner()
    if kind == "cuda" and importlib.util.find_spec("triton") is not None:
        from joulediff.recorders.torch.signature_kernel import KernelSigner

        return KernelSigner()
    return _DeviceSigner()


def make_signature(rows: np.ndarray, count: int) -> Signature:
    """Return the signature of `count` elements from rows of partial results."""
    sums = rows[:, : len(SUMS)].sum(axis=0)
    counts = rows[:, NANS : FRACTIONS + 1].sum(axis=0)
    nans, up, down, zeros, fractions = (int(n) for n in counts)
    finite = count - nans - up - down
    low, high = (float(rows[:, LOW].min()), float(rows[:, HIGH].max())) if finite else (None, None)
    return Signature(count, nans, up, down, zeros, not fractions, low, high, *(float(s) for s in sums))


class _PlainSigner:
    """For the CPU: blocks are converted to double in cache and multiplied there."""

    def __init__(self) -> None:
        import torch
        from scipy.linalg.blas import dasum

        with torch.inference_mode(False):  # a tensor made in inference mode could not be written outside of it
            self._block = torch.empty(BLOCK, dtype=torch.float64)
        self._sum_abs = dasum
        self._x = self._block.numpy()
        self._square, self._ones = np.empty(BLOCK), np.ones(BLOCK)
        self._is_zero = np.empty(BLOCK, dtype=bool)

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        count = extent.count
        if not count:
            return lambda: EMPTY
        flat = _flatten(tensor, extent)
        rows = np.zeros((-(-count // BLOCK), WIDTH))
        for row, start in zip(rows, range(0, count, BLOCK), strict=True):
            piece = flat[start : start + BLOCK]
            size = piece.shape[0]
            self._block[:size].copy_(piece)
            self._fill(row, size)
        return lambda: make_signature(rows, count)

    def finish(self) -> None:
        pass

    def _fill(self, row: np.ndarray, size: int) -> None:
        x, square = self._x[:size], self._square[:size]
        with np.errstate(all="ignore"):
            total_square = x.dot(x)
            absent = 0 if math.isfinite(total_square) else _take_out_nonfinite(x, row)
            np.multiply(x, x, out=square)
            row[: len(SUMS)] = (
                x.dot(self._ones[:size]),
                self._sum_abs(x),
                x.dot(x) if absent else total_square,
                x.dot(square),
                square.dot(square),
            )
            if not absent:
                row[LOW], row[HIGH] = x.min(), x.max()
                if row[LOW] <= 0 <= row[HIGH]:
                    row[ZEROS] = np.count_nonzero(np.equal(x, 0.0, out=self._is_zero[:size]))
            if not _looks_fractional(x):
                row[FRACTIONS] = np.count_nonzero(x != np.floor(x))
            else:
                row[FRACTIONS] = 1


def _take_out_nonfinite(x: np.ndarray, row: np.ndarray) -> int:
    """Count what is not finite, note the extremes of the rest, and put zeros in its place."""
    finite = np.isfinite(x)
    row[NANS], row[UPS], row[DOWNS] = np.isnan(x).sum(), np.isposinf(x).sum(), np.isneginf(x).sum()
    row[LOW] = x.min(initial=math.inf, where=finite)
    row[HIGH] = x.max(initial=-math.inf, where=finite)
    row[ZEROS] = np.count_nonzero(x == 0.0)
    x[~finite] = 0.0
    return int(x.size - finite.sum())


def _looks_fractional(x: np.ndarray) -> bool:
    """Return whether one of the first few elements is no whole number: then the others need no look."""
    return any(not float(each).is_integer() for each in x[:8])


class _DeviceSigner:
    """For devices without a kernel of ours: the same results from the framework's own reductions."""

    def __init__(self) -> None:
        self._plain = _PlainSigner()

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        return self._plain.sign(_flatten(tensor, extent).cpu(), Extent(((extent.count, 1),), extent.repeats))

    def finish(self) -> None:
        pass


def _flatten(tensor: torch.Tensor, extent: Extent) -> torch.Tensor:
    """Return the elements in one dimension: a view where they lie side by side, else a copy."""
    if extent.is_dense:
        return tensor.as_strided((extent.count,), (1,), tensor.storage_offset())
    sizes, strides = zip(*extent.dims, strict=True)
    return tensor.as_strided(sizes, strides, tensor.storage_offset()).reshape(-1)


EMPTY = Signature(0, 0, 0, 0, 0, True, None, None, *([0.0] * len(SUMS)))
