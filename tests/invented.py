"""Invented runs: recordings made from numpy arrays, without a framework.

`invented` builds a run operator by operator. `record` runs a step that is written with `Tensor` and the functions of
this module, and records it as a recorder would: values, signatures, views, writes in place and call paths. Both name
operators like PyTorch, because reports shorten these names; `toy::mul` works as well. Signatures are computed by
`sign`, written another way than the recorder's.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

import numpy as np

from joulediff.model.run import Replay, Run
from joulediff.model.signature import SIGN_PERIOD, SKETCH, SKETCH_STEP, Signature
from joulediff.pysource.call_path import CallPaths, read_sources
from run_builders import RunBuilder, domain_energy, energy, measurement

STEP_S = 10e-3


def sign(x: np.ndarray) -> Signature:
    """Return the signature of an array, written another way than the recorder's."""
    x = np.asarray(x, dtype=np.float64).ravel()  # a view in another order becomes a copy in its own
    finite = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        sums = [float(np.sum(finite)), float(np.sum(np.abs(finite))), *(float(np.sum(finite**n)) for n in (2, 3, 4))]
    return Signature(
        x.size,
        int(np.isnan(x).sum()),
        int(np.isposinf(x).sum()),
        int(np.isneginf(x).sum()),
        int((x == 0).sum()),
        bool((finite == np.floor(finite)).all()),
        float(finite.min()) if finite.size else None,
        float(finite.max()) if finite.size else None,
        *sums,
        sketch=sketch(x, sums[2]),
    )


def sketch(x: np.ndarray, sum_x2: float) -> tuple[int, ...] | None:
    """Return the sketch of a vector, by the definition: one hash for each element and one for each of its groups."""
    if not 0.0 < sum_x2 < math.inf:
        return None
    place = np.arange(x.size, dtype=np.uint64)
    group = place % SKETCH
    bits = _mix(place % SIGN_PERIOD) ^ (_mix(SIGN_PERIOD + place // SIGN_PERIOD) >> group)
    sums = np.zeros(SKETCH)
    np.add.at(sums, group.astype(int), np.where(bits & 1, -1.0, 1.0) * np.where(np.isfinite(x), x, 0.0))
    return tuple(round(float(each)) for each in sums / (math.sqrt(sum_x2) * SKETCH_STEP))


def _mix(numbers: np.ndarray) -> np.ndarray:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        numbers = ((numbers ^ numbers >> np.uint64(shift)) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return numbers


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Return random numbers, scaled as weights are."""
    return (np.random.default_rng(seed).standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)


Path = Sequence[tuple[str, int, str] | tuple[str, int, str, str]]


class Invented:
    """A run in the making. Values are known by the names that the test gives them."""

    def __init__(self, label: str, device: str) -> None:
        self.label = label
        self.builder = RunBuilder(device)
        self.places: dict[str, int] = {}
        self.signatures: list[Signature] = []
        self.replays: list[Replay] = []
        self.settings: dict[str, Any] = {}
        self.total_j = 0.0

    def input(self, name: str, array: np.ndarray, *, kind: str = "input", **changes: Any) -> Invented:
        """Add a tensor that is there before the step: an input, or a `parameter` or `buffer`."""
        self.places[name] = self.add_value(array, **{"kind": kind, "name": name, **changes})
        return self

    def op(
        self,
        name: str,
        inputs: Sequence[str],
        output: np.ndarray | Mapping[str, np.ndarray] | None = None,
        *,
        to: str | None = None,
        view: bool = False,
        frame: Path | int | None = None,
        kernel: str | None = None,
        kernel_s: float | None = None,
        joules: float | None = None,
        **changes: Any,
    ) -> Invented:
        """Add an operator that reads named values.

        Its output is known as `to`, or by the operator's name without its namespace; several outputs are a mapping. A
        `view` shares the memory of its first input. `frame` is a call path, outermost first: file, line, function, and
        the library of a frame that is not the user's. An operator with `kernel_s` or `joules` ran one kernel; one with
        joules has a replay, which is exact to 1 %.
        """
        number = len(self.builder.ops)
        read = [self.places[each] for each in inputs]
        made = output if isinstance(output, Mapping) else {} if output is None else {to or name.split("::")[-1]: output}
        storage = {"storage": self.builder.values[read[0]].storage} if view else {}
        outputs = []
        for key, array in made.items():
            self.places[key] = self.add_value(array, producer=number, writers=(number,), **storage)
            outputs.append(self.places[key])
        at = self._add_path(frame) if isinstance(frame, Sequence) else frame
        self.builder.op(name, inputs=read, outputs=outputs, frame=at, **changes)
        if kernel_s is not None or joules is not None:
            self._run_kernel(number, kernel or f"{name}_kernel", kernel_s, joules)
        return self

    def returned(self, *names: str) -> Invented:
        """Name values as outputs of the step."""
        for at, name in enumerate(names):
            value = self.places[name]
            label = "output" if len(names) == 1 else f"output.{at}"
            self.builder.values[value] = replace(self.builder.values[value], name=label)
        return self

    def set(self, **settings: Any) -> Invented:
        """Add settings; two underscores stand for a dot: `torch__num_threads`."""
        self.settings |= {name.replace("__", "."): value for name, value in settings.items()}
        return self

    def build(self, *, step_s: float = STEP_S, rest_w: float = 0.0, more_j: float = 0.0, **changes: Any) -> Run:
        """Return the run. With joules it is measured: those, the resting power, and `more_j` that nothing explains."""
        facts: dict[str, Any] = {"label": self.label, "signatures": tuple(self.signatures), "settings": self.settings}
        if self.replays:
            total_j = self.total_j + rest_w * (step_s - self.builder.now_s) + more_j
            domain = domain_energy(total_j, step_s, rest_w, energy=energy(total_j))
            facts["replays"] = tuple(self.replays)
            facts["traced_s"] = step_s
            facts["measurement"] = measurement(
                step_s, label=self.label, energy=domain.energy, domains={self.replays[0].domain: domain}
            )
        return self.builder.build(**{**facts, **changes})

    def add_value(self, array: np.ndarray, **changes: Any) -> int:
        array = np.asarray(array)
        self.signatures.append(sign(array))
        facts: dict[str, Any] = {
            "strides": tuple(stride // array.itemsize for stride in array.strides),
            "dtype": str(array.dtype),
            "signature": len(self.signatures) - 1,
        }
        return self.builder.value(array.shape, **{**facts, **changes})

    def _add_path(self, path: Path) -> int | None:
        at = None
        for file, line, function, *owner in path:
            at = self.builder.frame(file, line, function, owner=owner[0] if owner else None, parent=at)
        return at

    def _run_kernel(self, op: int, kernel: str, kernel_s: float | None, joules: float | None) -> None:
        length_s = kernel_s if kernel_s is not None else 1e-4 * (joules or 0.0)
        self.builder.kernel(kernel, length_s, op=op)
        if joules is not None:
            self.builder.ops[op] = replace(self.builder.ops[op], replay=len(self.replays))
            domain = "cpu" if self.builder.device == "cpu" else "gpu0"
            self.replays.append(Replay(op, domain, joules, 0.99 * joules, 1.01 * joules, cpu_s=length_s))
            self.total_j += joules


def invented(label: str = "invented", *, device: str = "cuda:0") -> Invented:
    """Return an empty run to add operators to."""
    return Invented(label, device)


class Tensor:
    """An array whose operators are recorded while a step runs. `name` and `kind` are those of a tensor given to it."""

    def __init__(self, array: Any, *, name: str | None = None, kind: str = "input") -> None:
        self.array = np.asarray(array)
        self.name, self.kind = name, kind
        self.base = self
        """The tensor whose memory it shares."""

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __matmul__(self, other: Tensor) -> Tensor:
        return call("mm", self.array @ other.array, self, other)

    def __add__(self, other: Tensor | float) -> Tensor:
        return _pointwise("add", np.add, self, other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return _pointwise("sub", np.subtract, self, other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return _pointwise("mul", np.multiply, self, other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return _pointwise("div", np.divide, self, other)

    def __rmul__(self, other: float) -> Tensor:
        return self * other

    def __radd__(self, other: float) -> Tensor:
        return self + other

    def __neg__(self) -> Tensor:
        return call("neg", -self.array, self)

    def pow(self, exponent: float) -> Tensor:
        return _pointwise("pow", np.power, self, exponent)

    def square(self) -> Tensor:
        return self.pow(2)

    def t(self) -> Tensor:
        return call("t", self.array.T, self, is_view=True)

    def view(self, *shape: int) -> Tensor:
        made = self.array.reshape(shape)
        assert np.shares_memory(made, self.array), "a view of these strides is impossible"
        return call("view", made, self, list(shape), is_view=True)

    def expand(self, *shape: int) -> Tensor:
        return call("expand", np.broadcast_to(self.array, shape), self, list(shape), is_view=True)

    def clone(self) -> Tensor:
        return call("clone", self.array.copy(order="K"), self)

    def contiguous(self) -> Tensor:
        if self.array.flags.c_contiguous:
            return self
        return call("clone", np.ascontiguousarray(self.array), self, {"memory_format": "contiguous_format"})

    def to(self, dtype: Any) -> Tensor:
        return call("_to_copy", self.array.astype(dtype), self, {"dtype": str(np.dtype(dtype))})

    def sum(self, axis: int | None = None, *, keepdim: bool = False) -> Tensor:
        return call("sum", self.array.sum(axis=axis, keepdims=keepdim), self, axis, keepdim)

    def mean(self, axis: int | None = None, *, keepdim: bool = False) -> Tensor:
        return call("mean", self.array.mean(axis=axis, keepdims=keepdim), self, axis, keepdim)

    def split(self, size: int, axis: int = -1) -> list[Tensor]:
        parts = np.split(self.array, range(size, self.array.shape[axis], size), axis=axis)
        return call_many("split", parts, self, size, axis, is_view=True)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return call("index", self.array[rows.array], self, rows)

    def item(self) -> float:
        call_many("_local_scalar_dense", [], self)
        return float(self.array)

    def mul_(self, other: float) -> Tensor:
        return self._write("mul_", self.array * other, other)

    def copy_(self, other: Tensor) -> Tensor:
        return self._write("copy_", other.array, other)

    def _write(self, name: str, array: np.ndarray, *arguments: Any) -> Tensor:
        if _recorders:
            _recorders[-1].write(f"aten::{name}", self, array, arguments)
        else:
            self.array[...] = array
        return self


def tanh(x: Tensor) -> Tensor:
    return call("tanh", np.tanh(x.array), x)


def exp(x: Tensor) -> Tensor:
    return call("exp", np.exp(x.array), x)


def log(x: Tensor) -> Tensor:
    with np.errstate(divide="ignore"):
        return call("log", np.log(x.array), x)


def sqrt(x: Tensor) -> Tensor:
    return call("sqrt", np.sqrt(x.array), x)


def reciprocal(x: Tensor) -> Tensor:
    return call("reciprocal", np.reciprocal(x.array), x)


def sigmoid(x: Tensor) -> Tensor:
    return call("sigmoid", _cast(1 / (1 + np.exp(-_wide(x))), x), x)


def silu(x: Tensor) -> Tensor:
    return call("silu", _cast(_wide(x) / (1 + np.exp(-_wide(x))), x), x)


def relu(x: Tensor) -> Tensor:
    return call("relu", np.maximum(x.array, 0), x)


def gelu(x: Tensor) -> Tensor:
    """The approximation by tanh."""
    wide = _wide(x)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return call("gelu", _cast(0.5 * wide * (1 + np.tanh(inner)), x), x, {"approximate": "tanh"})


def gelu_decomposed(x: Tensor) -> Tensor:
    """The same in eight operators."""
    return 0.5 * x * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3))))


def softmax(x: Tensor) -> Tensor:
    powers = np.exp(_wide(x) - _wide(x).max(axis=-1, keepdims=True))
    return call("_softmax", _cast(powers / powers.sum(axis=-1, keepdims=True), x), x, -1, False)


def log_softmax(x: Tensor) -> Tensor:
    shifted = _wide(x) - _wide(x).max(axis=-1, keepdims=True)
    return call("_log_softmax", _cast(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), x), x, -1, False)


def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    return call("cat", np.concatenate([each.array for each in tensors], axis=axis), *tensors, axis)


def full(shape: Sequence[int], value: float) -> Tensor:
    return call("full", np.full(shape, value, dtype=np.float32), list(shape), value)


def _pointwise(name: str, function: Callable[..., np.ndarray], x: Tensor, other: Tensor | float) -> Tensor:
    right = other.array if isinstance(other, Tensor) else x.dtype.type(other)
    return call(name, function(x.array, right), x, other)


def _wide(x: Tensor) -> np.ndarray:
    return x.array.astype(np.float64)


def _cast(array: np.ndarray, like: Tensor) -> np.ndarray:
    return array.astype(like.dtype)


def call(name: str, result: Any, *arguments: Any, is_view: bool = False) -> Tensor:
    """Record an operator with one output and return that; a name without a namespace is of `aten`."""
    return call_many(name, [result], *arguments, is_view=is_view)[0]


def call_many(name: str, results: Sequence[Any], *arguments: Any, is_view: bool = False) -> list[Tensor]:
    """Record an operator with any number of outputs. An argument that is a tensor is read."""
    made = [Tensor(result) for result in results]
    if is_view:
        source = next(each for each in arguments if isinstance(each, Tensor))
        for each in made:
            each.base = source.base
    if _recorders:
        _recorders[-1].add(name if "::" in name else f"aten::{name}", arguments, made)
    return made


class _Recorder:
    def __init__(self, label: str, device: str) -> None:
        self.run = Invented(label, device)
        self.paths = CallPaths(record.__code__, hidden=_is_here)
        self.values: dict[Tensor, int] = {}
        self.storages: dict[Tensor, int] = {}
        self.writers: dict[Tensor, list[int]] = {}
        """By the tensor that owns memory: the operators that wrote to it."""
        self.seen: dict[Tensor, int] = {}
        """By tensor: how many of these its value shows."""

    def add(self, name: str, arguments: Sequence[Any], made: Sequence[Tensor]) -> None:
        number = len(self.run.builder.ops)
        inputs = [self._value(each) for each in arguments if isinstance(each, Tensor)]
        outputs = [self._new(each, producer=number, writers=(number,)) for each in made]
        self._op(name, inputs, outputs, arguments)

    def write(self, name: str, target: Tensor, array: np.ndarray, arguments: Sequence[Any]) -> None:
        inputs = [self._value(each) for each in (target, *arguments) if isinstance(each, Tensor)]
        target.array[...] = array
        self.writers.setdefault(target.base, []).append(len(self.run.builder.ops))
        value = self._value(target)
        self._op(name, inputs, [value], (target, *arguments), writes=(value,))

    def _op(self, name: str, inputs: list[int], outputs: list[int], arguments: Sequence[Any], **changes: Any) -> None:
        numbers = iter(range(len(inputs)))
        args = [_to_plain(each, numbers) for each in arguments if not isinstance(each, dict)]
        kwargs = {name: value for each in arguments if isinstance(each, dict) for name, value in each.items()}
        text = json.dumps({"args": args, "kwargs": kwargs})
        frame = self.paths.here(sys._getframe())
        self.run.builder.op(name, inputs=inputs, outputs=outputs, arguments=text, frame=frame, **changes)

    def _value(self, tensor: Tensor) -> int:
        """Return the value that a tensor has now: a new one where its memory was written since it was last read."""
        known, writers = self.values.get(tensor), self.writers.get(tensor.base, [])
        if known is None:
            return self._new(tensor, kind=tensor.kind, name=tensor.name)
        if self.seen[tensor] == len(writers):
            return known
        since = tuple(writers[self.seen[tensor] :])
        return self._new(tensor, previous=known, producer=since[-1], writers=since)

    def _new(self, tensor: Tensor, **changes: Any) -> int:
        array, base = tensor.array, tensor.base
        places = {
            "storage": self.storages.setdefault(base, len(self.storages)),
            "offset": (array.ctypes.data - base.array.ctypes.data) // max(1, array.itemsize),
        }
        # Elements that are repeated by a stride of 0 are signed once.
        once = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
        value = self.run.add_value(array, repeats=array.size // max(1, once.size), **places, **changes)
        self.run.signatures[-1] = sign(once)
        self.values[tensor] = value
        self.seen[tensor] = len(self.writers.get(base, []))
        return value


def _is_here(code: CodeType) -> bool:
    return code.co_filename == __file__


def _to_plain(value: Any, numbers: Iterator[int]) -> Any:
    if isinstance(value, Tensor):
        return {"tensor": next(numbers)}
    if isinstance(value, list | tuple):
        return [_to_plain(each, numbers) for each in value]
    return value


_recorders: list[_Recorder] = []


def record(step: Callable[[], Any], *, label: str = "program", device: str = "cpu", **changes: Any) -> Run:
    """Return a run with the operators and values of a step, and nothing measured.

    Tensors that the step returns, alone or in lists and mappings, are its outputs.
    """
    recorder = _Recorder(label, device)
    _recorders.append(recorder)
    try:
        result = step()
    finally:
        _recorders.pop()
    for name, tensor in _outputs(result, "output"):
        value = recorder.values.get(tensor)
        if value is not None:
            recorder.run.builder.values[value] = replace(recorder.run.builder.values[value], name=name)
    frames = tuple(recorder.paths.frames)
    sources = read_sources(frames, recorder.paths.files)
    return recorder.run.build(**{"frames": frames, "sources": sources, "kernels": (), "traced_s": None, **changes})


def _outputs(result: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(result, Tensor):
        yield name, result
    elif isinstance(result, Mapping):
        for key, each in result.items():
            yield from _outputs(each, f"{name}.{key}")
    elif isinstance(result, list | tuple):
        for at, each in enumerate(result):
            yield from _outputs(each, f"{name}.{at}")
