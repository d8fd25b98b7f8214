"""Signs a tensor when it is produced: counts, extremes, power sums and a sketch, in double precision.

Signing reads the data in place and keeps no reference to it, each element once even if it is expanded. Only the sketch
depends on the order of elements: on the CPU a tensor is read in the order of its memory, and once more for the sketch
if its logical order is another. On CUDA the sums stay on the device until `finish`: no signature waits for another.
"""

from __future__ import annotations

import importlib.util
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from joulediff.frameworks.sketch import SignedSums, to_sketch
from joulediff.frameworks.torch.capture.geometry import Dims, Extent, extent_of
from joulediff.model.signature import Signature

if TYPE_CHECKING:
    import torch

# The columns of a row of partial results, on every device.
SUMS = ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
COUNTS = ("nans", "positive_infs", "negative_infs", "zeros", "fractions")
SUM_X2 = SUMS.index("sum_x2")
LOW, HIGH = len(SUMS), len(SUMS) + 1
NANS, UPS, DOWNS, ZEROS, FRACTIONS = range(HIGH + 1, HIGH + 1 + len(COUNTS))
WIDTH = FRACTIONS + 1

# Elements converted to double at a time on the CPU, and summed at a time. Blocks fit a core's second-level cache.
# PyTorch starts threads above 32768 elements (at::internal::GRAIN_SIZE), OpenBLAS above 10000 (interface/dot.c): those
# wait for cores that the program keeps busy, and on two busy ones a captured step took 30 times as long.
BLOCK = 32768
STRETCH = 8192
# Rows of a transposed matrix that are read together: 16 single-precision numbers fill a cache line.
LINE = 16
# Beyond it the fourth power of a double may overflow.
HUGE = 1e76


class Signer(Protocol):
    """Signs the tensors of one kind of device."""

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        """Return a function that gives the signature of `tensor` as it is now; call it after `finish`."""

    def sketch(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], np.ndarray]:
        """Return a function that gives the sums of the groups of a sketch; call it after `finish`."""

    def finish(self) -> None:
        """Copy the results from the device."""


class Signers:
    """The signer of each device, opened when first needed; signatures are numbered in the order of the calls."""

    def __init__(self) -> None:
        import torch

        self._without_modes = torch._C._DisableTorchDispatch  # noqa: SLF001
        self._without_overrides = torch._C.DisableTorchFunction  # noqa: SLF001
        self._signers: dict[str, Signer] = {}
        self._promises: list[Callable[[], Signature]] = []

    def sign(self, tensor: torch.Tensor, extent: Extent) -> int | None:
        """Return the number of the signature of `tensor`; None for a kind of tensor that cannot be read."""
        kind = tensor.device.type
        if kind == "meta" or not _is_readable(tensor.__class__, tensor.dtype):
            return None
        if not tensor.untyped_storage().nbytes() and extent.count:
            return None  # its memory was freed, as for a sharded weight
        with self._alone():
            if kind not in self._signers:
                self._signers[kind] = _open_signer(kind)
            return self._promise(self._signers[kind].sign(*_as_real(tensor, extent)))

    def sketch(self, tensor: torch.Tensor, extent: Extent, signature: int) -> int:
        """Return the number of the signature of a signed tensor's elements in another order, that of `tensor`."""
        signed = self._promises[signature]
        with self._alone():
            sums = self._signers[tensor.device.type].sketch(*_as_real(tensor, extent))
        return self._promise(lambda: replace(signed(), sketch=to_sketch(sums(), signed().sum_x2)))

    def without_sketch(self, signature: int) -> int:
        """Return the number of the signature of a signed tensor's elements in an order that nothing needs."""
        signed = self._promises[signature]
        return self._promise(lambda: replace(signed(), sketch=None))

    def _promise(self, promise: Callable[[], Signature]) -> int:
        self._promises.append(cache(promise))
        return len(self._promises) - 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hide the work from the program's own modes and subclasses."""
        alone = self._without_modes()
        try:
            with self._without_overrides():
                yield
        finally:
            del alone

    def finish(self) -> list[Signature]:
        """Return all signatures, by number."""
        for signer in self._signers.values():
            signer.finish()
        return [promise() for promise in self._promises]


def sign_now(tensors: Sequence[torch.Tensor]) -> list[Signature | None]:
    """Return the signatures of tensors as they are, expanded as they are; None for one that cannot be read."""
    import torch

    signers, found = Signers(), []
    with torch.no_grad():
        for tensor in tensors:
            has_shape = tensor.layout is torch.strided and not tensor.is_nested
            extent = extent_of(tensor.shape, tensor.stride()) if has_shape else None
            found.append((signers.sign(tensor, extent), extent.repeats) if extent is not None else (None, 1))
    signatures = signers.finish()
    return [None if at is None else signatures[at].repeated(times) for at, times in found]


def make_signature(rows: np.ndarray, count: int, groups: np.ndarray) -> Signature:
    """Return the signature of `count` elements from rows of partial results, and the sums of the sketch's groups."""
    sums = rows[:, : len(SUMS)].sum(axis=0)
    counts = rows[:, NANS : FRACTIONS + 1].sum(axis=0)
    nans, up, down, zeros, fractions = (int(n) for n in counts)
    finite = count - nans - up - down
    # Which of 0.0 and -0.0 is the lower depends on their order: adding 0.0 makes them one.
    low, high = (float(rows[:, LOW].min()) + 0.0, float(rows[:, HIGH].max()) + 0.0) if finite else (None, None)
    x, size, x2, x3, x4 = (float(each) for each in sums)
    sketch = to_sketch(groups, x2)
    return Signature(count, nans, up, down, zeros, not fractions, low, high, x, size, x2, x3, x4, sketch)


EMPTY = Signature(0, 0, 0, 0, 0, True, None, None, 0.0, 0.0, 0.0, 0.0, 0.0)


@lru_cache(maxsize=1024)
def _is_readable(kind: type, dtype: torch.dtype) -> bool:
    """Return whether tensors of a class and type have their own memory that holds numbers."""
    import torch

    if kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:  # type: ignore[attr-defined]  # noqa: SLF001
        return False
    if dtype.is_complex:
        return True
    alone = torch._C._DisableTorchDispatch()  # noqa: SLF001
    try:
        torch.zeros(16, dtype=torch.uint8, device="cpu").view(dtype).to(torch.float64)
    except RuntimeError:
        return False
    finally:
        del alone
    return True


def _as_real(tensor: torch.Tensor, extent: Extent) -> tuple[torch.Tensor, Extent]:
    """Return the elements as plain real numbers, complex ones as pairs."""
    import torch

    if not (tensor.is_complex() or tensor.is_neg()):
        return tensor, extent
    tensor = _distinct(tensor, extent).resolve_conj().resolve_neg()
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor, extent_of(tensor.shape, tensor.stride())


def _distinct(tensor: torch.Tensor, extent: Extent) -> torch.Tensor:
    """Return a view with every element once, in the same order."""
    return tensor.as_strided(*_split(extent.order), tensor.storage_offset())


def _open_signer(kind: str) -> Signer:
    if kind == "cpu":
        return _PlainSigner()
    if kind == "cuda" and importlib.util.find_spec("triton") is not None:
        from joulediff.frameworks.torch.capture.signature_kernel import KernelSigner

        return KernelSigner()
    return _FetchingSigner()


class _PlainSigner:
    """For the CPU: blocks are converted to double in cache and multiplied there."""

    def __init__(self) -> None:
        import torch
        from scipy.linalg.blas import dasum, ddot

        self._float, self._dot, self._sum_abs = torch.float32, ddot, dasum
        self._x, self._square, self._ones = _aligned(BLOCK), _aligned(BLOCK), _aligned(STRETCH)
        self._ones.fill(1.0)
        self._stretches = _stretches(self._x, self._square)
        self._signed = SignedSums()
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written outside of it
            self._block = self._into = torch.from_numpy(self._x)
        self._shape = self._into.shape

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        count, is_fractional = extent.count, False
        if not count:
            return lambda: EMPTY
        rows, first = array("d"), 0
        in_order = extent.order == extent.dims
        self._signed.clear()
        for source in self._sources(tensor, extent):
            x = self._load(source)
            row = self._measure(x, source if isinstance(source, np.ndarray) else x)
            if not is_fractional:
                is_fractional = tensor.dtype.is_floating_point and _has_fractions(x)
            rows.extend([*row, is_fractional])
            if in_order and row[SUM_X2] < math.inf:
                self._signed.add(x, first)
                first += x.size
        groups = self._signed.total() if in_order else self.sketch(tensor, extent)()
        return lambda: make_signature(np.frombuffer(rows).reshape(-1, WIDTH), count, groups)

    def sketch(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], np.ndarray]:
        with np.errstate(all="ignore"):
            groups = self._sketch(tensor, extent, is_finite=True)
            if not np.isfinite(groups).all():
                groups = self._sketch(tensor, extent, is_finite=False)
        return lambda: groups

    def _sketch(self, tensor: torch.Tensor, extent: Extent, *, is_finite: bool) -> np.ndarray:
        self._signed.clear()
        for source, first, pitch in _tiles(tensor, extent.order):
            x = self._load(source)
            if not is_finite:
                x[~np.isfinite(x)] = 0.0
            rows = x.reshape(source.shape[0], -1) if pitch else (x,)
            for row, part in enumerate(rows):
                self._signed.add(part, first + row * pitch)
        return self._signed.total()

    def finish(self) -> None:
        pass

    def _sources(self, tensor: torch.Tensor, extent: Extent) -> Iterator[torch.Tensor | np.ndarray]:
        """Cut elements into views of at most a block; NumPy takes less time than PyTorch for those it can read."""
        if tensor.dtype != self._float or not extent.is_dense or extent.count < BLOCK:
            yield from _blocks(tensor, extent.dims)
            return
        memory = tensor.detach().as_strided((extent.count,), (1,), tensor.storage_offset()).numpy()
        for at in range(0, extent.count, BLOCK):
            yield memory[at : at + BLOCK]

    def _load(self, source: torch.Tensor | np.ndarray) -> np.ndarray:
        """Return elements as doubles, in the block."""
        if isinstance(source, np.ndarray):
            x = self._x[: source.size]
            with np.errstate(all="ignore"):  # a signaling NaN
                np.copyto(x, source)
            return x
        shape = source.shape
        if shape != self._shape:
            self._shape, self._into = shape, self._block[: source.numel()].view(shape)
        self._into.copy_(source)
        return self._x[: source.numel()]

    def _measure(self, x: np.ndarray, source: np.ndarray) -> list[float]:
        """Return a row without fractions. `source` has the same elements, perhaps in fewer bytes."""
        low, high = float(np.minimum.reduce(source)), float(np.maximum.reduce(source))
        if low > -HUGE and high < HUGE:  # never with NaN, which numpy takes for the least and the greatest of all
            sums = self._sums(x)
            zeros = self._count_zeros(x) if low <= 0.0 <= high else 0
            return [*sums, low, high, 0, 0, 0, zeros]
        with np.errstate(all="ignore"):
            others = _take_out_nonfinite(x)
            return [*self._sums(x), *others]

    def _sums(self, x: np.ndarray) -> list[float]:
        square, dot, size = self._square[: x.size], self._dot, self._sum_abs
        np.multiply(x, x, out=square)
        pairs = self._stretches if x.size == BLOCK else _stretches(x, square)
        parts = [(dot(a, self._ones[: a.size]), size(a), size(b), dot(a, b), dot(b, b)) for a, b in pairs]
        return [sum(part) for part in zip(*parts, strict=True)]

    def _count_zeros(self, x: np.ndarray) -> int:
        """Return how many elements are zero: none, if the least square is not."""
        return 0 if np.minimum.reduce(self._square[: x.size]) else int(np.count_nonzero(x == 0.0))


def _stretches(x: np.ndarray, square: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x[at : at + STRETCH], square[at : at + STRETCH]) for at in range(0, x.size, STRETCH)]


def _aligned(count: int) -> np.ndarray:
    """Return memory for doubles that begins with a cache line: BLAS adds up in another order where it does not."""
    memory = np.empty(count + _LINE)
    start = -(memory.ctypes.data // memory.itemsize) % _LINE
    return memory[start : start + count]


_LINE = 8


def _blocks(tensor: torch.Tensor, dims: Dims) -> Iterator[torch.Tensor]:
    """Cut elements into views of at most a block, in the order of `dims`."""
    sizes, strides = _split(dims)
    whole = tensor.as_strided(sizes, strides, tensor.storage_offset())
    if math.prod(sizes) <= BLOCK:
        yield whole
    elif len(sizes) == 1:
        yield from whole.split(BLOCK)
    else:
        for offset, part in _cut(tensor.storage_offset(), dims, BLOCK):
            yield tensor.as_strided(*_split(part), offset)


def _tiles(tensor: torch.Tensor, order: Dims) -> Iterator[tuple[torch.Tensor, int, int]]:
    """Cut elements into views of at most a block: each with the index of its first element, and the pitch of its rows.

    The rows of a view, along its first dimension, are `pitch` indices apart; 0 for a view without gaps in its indices.
    A row of a transposed matrix is far apart in memory: a view has a part of several rows then, which share cache
    lines.
    """
    strides = [stride for _, stride in order]
    across = strides.index(min(strides)) if strides else 0
    inner = order[across + 1 :]
    pitch = math.prod(size for size, _ in inner)
    first = 0
    if not inner or pitch <= BLOCK // LINE:
        for view in _blocks(tensor, order):
            yield view, first, 0
            first += view.numel()
        return
    size, stride = order[across]
    for offset, _ in _cut(tensor.storage_offset(), order[:across], 1):
        for row in range(0, size, LINE):
            rows = min(LINE, size - row)
            at = first + row * pitch
            for place, part in _cut(offset + row * stride, inner, BLOCK // LINE):
                view = tensor.as_strided(*_split(((rows, stride), *part)), place)
                yield view, at, pitch
                at += view.numel() // rows
        first += size * pitch


def _split(dims: Dims) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(size for size, _ in dims), tuple(stride for _, stride in dims)


def _cut(offset: int, dims: Dims, limit: int) -> Iterator[tuple[int, Dims]]:
    """Cut elements into blocks of at most `limit`: the offset and dimensions of each."""
    if not dims:
        yield offset, ()
        return
    (size, stride), *inner = dims
    rows = limit // math.prod(count for count, _ in inner)
    for at in range(0, size, max(rows, 1)):
        if rows:
            yield offset + at * stride, ((min(rows, size - at), stride), *inner)
        else:
            yield from _cut(offset + at * stride, tuple(inner), limit)


def _take_out_nonfinite(x: np.ndarray) -> list[float]:
    """Return the extremes of the finite elements, and how many others and zeros there are; the others become zeros."""
    finite = np.isfinite(x)
    low, high = x.min(initial=math.inf, where=finite), x.max(initial=-math.inf, where=finite)
    counts = [np.isnan(x).sum(), np.isposinf(x).sum(), np.isneginf(x).sum(), np.count_nonzero(x == 0.0)]
    x[~finite] = 0.0
    return [low, high, *counts]


def _has_fractions(x: np.ndarray) -> bool:
    """Return whether any element is not a whole number; the first elements usually decide it."""
    return any(not float(each).is_integer() for each in x[:8]) or bool(np.any(x != np.floor(x)))


class _FetchingSigner:
    """For devices without a kernel of ours: each tensor is fetched and signed at once."""

    def __init__(self) -> None:
        self._plain = _PlainSigner()

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        here = _distinct(tensor, extent).cpu()
        return self._plain.sign(here, extent_of(here.shape, here.stride()))

    def sketch(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], np.ndarray]:
        here = _distinct(tensor, extent).cpu()
        return self._plain.sketch(here, extent_of(here.shape, here.stride()))

    def finish(self) -> None:
        pass
