"""Runs recorded operators one after the other, each on the outputs of those before it.

Values that no operator of the sequence produces are provided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from joulediff.frameworks.jobs import Dataflow
from joulediff.frameworks.torch.capture.arguments import Encoder, decode
from joulediff.frameworks.torch.replay.rebuild import find_function
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Form, Op, Run

if TYPE_CHECKING:
    import torch

# Less than the difference of two sorted tensors of the same distribution: for n elements that is 1 to 3 / sqrt(n), and
# 0.27 for the nearest of 400 (uniform, normal and exponential ones).
_ROUNDING, _SORTED_APART, _SORTED_MOST = 1e-4, 0.1, 5e-3
# Work of the host that is no part of an operator.
_NO_WORK = frozenset(
    f"aten::{name}"
    for name in (
        "_nnpack_available",
        "as_strided",
        "empty",
        "empty_strided",
        "expand",
        "resize_",
        "resolve_conj",
        "result_type",
        "to",
        "view",
    )
)
Tensors = dict[int, "torch.Tensor"]


class _Slot:
    """Stands for a tensor among decoded arguments."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class OpSequence:
    """Operators of a run, decoded once. `needed` are the values to give."""

    def __init__(self, run: Run, ops: Sequence[int]) -> None:
        self._run = run
        self._ops = [run.ops[op] for op in ops]
        self._calls = [_Call(op) for op in self._ops]
        self._flow = Dataflow(run, ops)
        self.needed = self._flow.needed

    def __call__(self, given: Mapping[int, torch.Tensor]) -> Tensors:
        """Return every tensor by its value after the last operator has run."""
        known = dict(given)
        for op, call, sources in zip(self._ops, self._calls, self._flow.sources, strict=True):
            made = call([known[value] for value in sources])
            known.update(zip(op.outputs, made, strict=False))
        return known

    def find(self, known: Mapping[int, torch.Tensor], value: int) -> torch.Tensor | None:
        """Return the tensor of a value after a run; None for one that the sequence does not know."""
        at = self._flow.locate(value)
        return None if at is None else known.get(at)

    @property
    def written(self) -> set[int]:
        """Given values whose memory the operators write to."""
        memory = {self._run.values[value].storage for op in self._ops for value in op.writes}
        return {value for value in self.needed if self._run.values[value].storage in memory}


class _Call:
    """One operator with its arguments decoded, tensors left open."""

    def __init__(self, op: Op) -> None:
        self._function = find_function(op)
        slots = [_Slot(at) for at in range(len(op.inputs))]
        self._args, self._kwargs = decode(op.arguments, slots)
        self._encoder = Encoder()

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        args = [_fill(each, tensors) for each in self._args]
        kwargs = {name: _fill(each, tensors) for name, each in self._kwargs.items()}
        made = self._function(*args, **kwargs)
        return [made] if hasattr(made, "untyped_storage") else self._encoder.returns(made)[1]


def _fill(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, _Slot):
        return tensors[value.at]
    if isinstance(value, list):
        return [_fill(each, tensors) for each in value]
    return value


def to_form(tensor: torch.Tensor, form: Form) -> torch.Tensor:
    """Return a tensor of the same values in another form.

    A form of another shape reinterprets the memory in order, as views of dense memory do.
    """
    import torch

    dtype = getattr(torch, form.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise JoulediffError(f"this PyTorch has no type {form.dtype[:40]}")
    tensor = tensor.to(dtype)
    if tuple(tensor.shape) == form.shape:
        if tuple(tensor.stride()) == form.strides:
            return tensor
        if 0 in form.strides:
            return _expand(tensor, form)
        return torch.empty_strided(form.shape, form.strides, dtype=dtype, device=tensor.device).copy_(tensor)
    count = math.prod(form.shape)
    if count != tensor.numel():
        raise JoulediffError("an input has another number of elements there")
    flat = tensor.as_strided((count,), (1,)) if _is_dense(tensor) else tensor.reshape(-1)
    empty = torch.empty_strided(form.shape, form.strides, dtype=dtype, device=tensor.device)
    if not _is_dense(empty):
        return flat.reshape(form.shape)
    empty.as_strided((count,), (1,)).copy_(flat)
    return empty


def _expand(tensor: torch.Tensor, form: Form) -> torch.Tensor:
    """Return a tensor with one element along each dimension of stride 0."""
    import torch

    for dim, stride in enumerate(form.strides):
        if stride == 0:
            tensor = tensor.narrow(dim, 0, min(1, form.shape[dim]))
    made = torch.empty_strided(tensor.shape, form.strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor).expand(form.shape)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill their memory without a gap, in any order."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True


def differ(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the difference of two tensors, as a share of the norm of `a`, ignoring order and zeros.

    This agrees with matching: a tensor equals itself transposed, sorted or padded.
    """
    import torch

    left, right = (_numbers(each) for each in (a, b))
    gap = _gap(left, right) if a.shape == b.shape else float("inf")
    if gap <= _ROUNDING:
        return gap
    if left.numel() != right.numel():
        left, right = left[left != 0], right[right != 0]
    if left.is_complex() != right.is_complex():
        left, right = left.to(torch.complex128), right.to(torch.complex128)
    ordered = _gap(_ordered(left), _ordered(right))
    near = max(_ROUNDING, min(_SORTED_MOST, _SORTED_APART / math.sqrt(max(1, left.numel()))))
    return ordered if ordered <= near or a.shape != b.shape else gap


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    flat = tensor.detach().flatten()
    if flat.is_complex() and flat.imag.any():
        return flat.to(torch.complex128)
    # Eigenvalues of a symmetric matrix have an imaginary part of nothing.
    return (flat.real if flat.is_complex() else flat).to(torch.float64)


def _ordered(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers in order; complex ones by their real parts, and then by the others."""
    if not numbers.is_complex():
        return numbers.sort().values
    by_imaginary = numbers[numbers.imag.argsort(stable=True)]
    return by_imaginary[by_imaginary.real.argsort(stable=True)]


def _gap(left: torch.Tensor, right: torch.Tensor) -> float:
    import torch

    if left.numel() != right.numel():
        return float("inf")
    left, right = (torch.view_as_real(each) if each.is_complex() else each for each in (left, right))
    if left.shape != right.shape:
        return float("inf")
    finite = left.isfinite() & right.isfinite()
    if not torch.allclose(left[~finite], right[~finite], equal_nan=True):
        return float("inf")
    left, right = left[finite], right[finite]
    norm, apart = float(left.norm()), float((left - right).norm())
    return apart / norm if norm else (0.0 if not apart else float("inf"))


def kernel_names(call: Callable[[], object], device: str) -> tuple[str, ...]:
    """Return the kernels that a device runs for a call, each once; for the host, the innermost operators."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    call()
    if on_gpu:
        torch.cuda.synchronize(device)
    with profile(activities=activities) as profiler:
        call()
        if on_gpu:
            torch.cuda.synchronize(device)
    events = profiler.events()
    if on_gpu:
        found = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
        return tuple(dict.fromkeys(e.name for e in sorted(found, key=lambda event: event.time_range.start)))
    working = [event for event in events if _works(event) and not any(map(_works, event.cpu_children))]
    return tuple(dict.fromkeys(event.name for event in working))


def _works(event: Any) -> bool:
    return "::" in event.name and event.name not in _NO_WORK
