"""The signature as one Triton kernel: each element is read once, every sum is kept in double precision.

A tensor is read in its logical order, which the sketch needs; other sums do not depend on it, but for rounding.

Launching costs about 13 µs on the host; nothing waits for the device. Partial results are in a buffer,
a row for each program of each launch, and are added up on the host at the end. This file is loaded only
for CUDA tensors, and only where Triton is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
import triton.language as tl
from triton.compiler import CompiledKernel

from joulediff.frameworks.torch.capture.geometry import Extent
from joulediff.frameworks.torch.capture.signature import EMPTY, WIDTH, make_signature
from joulediff.model.signature import SIGN_PERIOD, SKETCH, Signature

if TYPE_CHECKING:
    import torch

# Elements per block of a Triton program, and the largest number of programs: 205 million halves take
# 0.52 ms on an H200 with these, 0.8 to 3 ms with a quarter of the programs.
BLOCK = 512
PROGRAMS = 528
# Elements for which another program pays off: each program adds a row to fetch.
ELEMENTS_PER_PROGRAM = 8192
BUFFER_ROWS = 65536
PITCH = 32
# Queries of (batch, head, position, channel) that are parts of a fused projection have four.
MAX_DIMS = 4

KINDS = {
    "float64": tl.float64,
    "float32": tl.float32,
    "float16": tl.float16,
    "bfloat16": tl.bfloat16,
    "int64": tl.int64,
    "int32": tl.int32,
    "int16": tl.int16,
    "int8": tl.int8,
    "uint8": tl.uint8,
    "bool": tl.uint8,
}
# Triton passes a whole number in 32 bits if it fits, and compiles a kernel for each width.
NARROW = 2**31

_PLAIN = ["data", "row", "count", "n1", "n2", "n3", "s0", "s1", "s2", "s3"]
_PITCH = tl.constexpr(PITCH)
_WIDTH = tl.constexpr(WIDTH)
_SKETCH = tl.constexpr(SKETCH)
_PERIOD = tl.constexpr(SIGN_PERIOD)


@triton.jit
def _mix(number):  # type: ignore[no-untyped-def]
    """Do `model.signature.mix`, for a whole number of 32 bits without a sign."""
    number = number ^ (number >> 16)
    number = number * 0x85EBCA6B
    number = number ^ (number >> 13)
    number = number * 0xC2B2AE35
    return number ^ (number >> 16)


@triton.jit(do_not_specialize=_PLAIN, do_not_specialize_on_alignment=[*_PLAIN, "out"])  # type: ignore[untyped-decorator]
def _sign(  # type: ignore[no-untyped-def]
    data,
    out,
    row,
    count,
    n1,
    n2,
    n3,
    s0,
    s1,
    s2,
    s3,
    KIND: tl.constexpr,  # noqa: N803 - constants in Triton
    DENSE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0).to(tl.int64)
    stride = tl.num_programs(0).to(tl.int64) * BLOCK
    source = data.to(tl.pointer_type(KIND))
    sum_x = tl.zeros([BLOCK], tl.float64)
    sum_abs = tl.zeros([BLOCK], tl.float64)
    sum_x2 = tl.zeros([BLOCK], tl.float64)
    sum_x3 = tl.zeros([BLOCK], tl.float64)
    sum_x4 = tl.zeros([BLOCK], tl.float64)
    low = tl.full([BLOCK], float("inf"), tl.float64)
    high = tl.full([BLOCK], float("-inf"), tl.float64)
    nans = tl.zeros([BLOCK], tl.int64)
    ups = tl.zeros([BLOCK], tl.int64)
    downs = tl.zeros([BLOCK], tl.int64)
    zeros = tl.zeros([BLOCK], tl.int64)
    fractions = tl.zeros([BLOCK], tl.int64)
    # BLOCK is a multiple of the number of groups and divides the period: a lane has one group, a block one period.
    signed = tl.zeros([BLOCK], tl.float64)
    lane = tl.arange(0, BLOCK)
    group = (lane % _SKETCH).to(tl.uint32)
    for start in range(program * BLOCK, count, stride):
        at = start + lane
        inside = at < count
        if DENSE:
            place = at
        else:
            rows = at // n3
            planes = rows // n2
            place = (planes // n1) * s0 + (planes % n1) * s1 + (rows % n2) * s2 + (at % n3) * s3
        x = tl.load(source + place, mask=inside, other=0).to(tl.float64)
        is_nan = x != x
        is_up = x == float("inf")
        is_down = x == float("-inf")
        finite = inside & (is_nan == 0) & (is_up == 0) & (is_down == 0)
        nans += is_nan.to(tl.int64)
        ups += is_up.to(tl.int64)
        downs += is_down.to(tl.int64)
        zeros += (inside & (x == 0)).to(tl.int64)
        fractions += (finite & (x != tl.floor(x))).to(tl.int64)
        low = tl.minimum(low, tl.where(finite, x, float("inf")))
        high = tl.maximum(high, tl.where(finite, x, float("-inf")))
        x = tl.where(finite, x, 0.0)
        square = x * x
        sum_x += x
        sum_abs += tl.abs(x)
        sum_x2 += square
        sum_x3 += square * x
        sum_x4 += square * square
        flips = _mix((start // _PERIOD + _PERIOD).to(tl.uint32)) >> group
        is_negative = ((_mix((at % _PERIOD).to(tl.uint32)) ^ flips) & 1) != 0
        signed += tl.where(is_negative, -x, x)
    place = out + (row + program) * _PITCH
    tl.store(place + 0, tl.sum(sum_x))
    tl.store(place + 1, tl.sum(sum_abs))
    tl.store(place + 2, tl.sum(sum_x2))
    tl.store(place + 3, tl.sum(sum_x3))
    tl.store(place + 4, tl.sum(sum_x4))
    tl.store(place + 5, tl.min(low))
    tl.store(place + 6, tl.max(high))
    tl.store(place + 7, tl.sum(nans).to(tl.float64))
    tl.store(place + 8, tl.sum(ups).to(tl.float64))
    tl.store(place + 9, tl.sum(downs).to(tl.float64))
    tl.store(place + 10, tl.sum(zeros).to(tl.float64))
    tl.store(place + 11, tl.sum(fractions).to(tl.float64))
    groups = tl.sum(tl.reshape(signed, [BLOCK // _SKETCH, _SKETCH]), axis=0)
    tl.store(place + _WIDTH + tl.arange(0, _SKETCH), groups)


def _groups(rows: np.ndarray) -> np.ndarray:
    sums: np.ndarray = rows[:, WIDTH : WIDTH + SKETCH].sum(axis=0)
    return sums


class KernelSigner:
    """Signs CUDA tensors on the stream they are produced on."""

    def __init__(self) -> None:
        import torch

        self._buffers: dict[torch.device, torch.Tensor] = {}
        self._used: dict[torch.device, int] = {}
        self._fetched: dict[torch.device, list[np.ndarray]] = {}
        self._kinds = {getattr(torch, name): kind for name, kind in KINDS.items()}
        self._ready: dict[tuple[object, ...], Any] = {}
        self._current_device: Callable[[], int] = torch._C._cuda_getDevice  # noqa: SLF001 - torch.cuda's takes 1 µs

    def sign(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], Signature]:
        count = extent.count
        if not count:
            return lambda: EMPTY
        rows = self._sum_up(tensor, extent)
        return lambda: make_signature(rows(), count, _groups(rows()))

    def sketch(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], np.ndarray]:
        if not extent.count:
            return lambda: np.zeros(SKETCH)
        rows = self._sum_up(tensor, extent)
        return lambda: _groups(rows())

    def _sum_up(self, tensor: torch.Tensor, extent: Extent) -> Callable[[], np.ndarray]:
        """Launch the kernel, and return a function that gives its rows."""
        import torch

        count, device, dims = extent.count, tensor.device, extent.order
        kind = self._kinds.get(tensor.dtype)
        if len(dims) > MAX_DIMS or kind is None:
            sizes, strides = zip(*dims, strict=True) if dims else ((), ())
            tensor = tensor.as_strided(sizes, strides, tensor.storage_offset()).contiguous()
            tensor = tensor if kind is not None else tensor.to(torch.float32)
            kind = kind or tl.float32
            dims = ((count, 1),)
        programs = min(PROGRAMS, max(1, math.ceil(count / ELEMENTS_PER_PROGRAM)))
        buffer, row, page = self._rows(device, programs)
        (_, s0), (n1, s1), (n2, s2), (n3, s3) = ((1, 0),) * (MAX_DIMS - len(dims)) + dims
        dense = not dims or (len(dims) == 1 and s3 == 1)
        arguments = (tensor.data_ptr(), buffer, row, count, n1, n2, n3, s0, s1, s2, s3, kind, dense, BLOCK)
        if self._current_device() == device.index:
            self._launch(device, programs, arguments)
        else:
            with torch.cuda.device(device):
                self._launch(device, programs, arguments)
        return lambda: self._fetched[device][page][row : row + programs]

    def _launch(self, device: torch.device, programs: int, arguments: tuple[Any, ...]) -> None:
        """Launch the kernel: by Triton's own way first, then by the compiled kernel itself, in half the time."""
        key = (device, *arguments[-3:])
        is_narrow = max(arguments[3:11]) < NARROW
        ready = self._ready.get(key) if is_narrow else None
        if ready is not None:
            ready[(programs, 1, 1)](*arguments)
            return
        compiled = _sign[(programs,)](*arguments, num_warps=4)
        if is_narrow and isinstance(compiled, CompiledKernel):
            self._ready[key] = compiled

    def _rows(self, device: torch.device, programs: int) -> tuple[torch.Tensor, int, int]:
        import torch

        if device not in self._buffers:
            self._buffers[device] = torch.empty(BUFFER_ROWS, PITCH, dtype=torch.float64, device=device)
            self._used[device], self._fetched[device] = 0, []
        if self._used[device] + programs > BUFFER_ROWS:
            self._fetch(device)
        row = self._used[device]
        self._used[device] += programs
        return self._buffers[device], row, len(self._fetched[device])

    def _fetch(self, device: torch.device) -> None:
        import torch

        torch.cuda.synchronize(device)  # several streams may have written
        self._fetched[device].append(self._buffers[device][: self._used[device]].cpu().numpy())
        self._used[device] = 0

    def finish(self) -> None:
        for device in self._buffers:
            self._fetch(device)
        self._buffers.clear()
