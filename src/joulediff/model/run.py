"""The record of one run: its operators in order, the values between them, and the kernels of each operator.

A run is data alone: no tensor, no device handle, no framework. Operators, values, signatures and
frames refer to each other by their place in the run's tuples, so `run.values[i].id == i`.
`Run.index` answers the questions that would otherwise scan these tuples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from joulediff.model.energy import Energy, Source, to_energy
from joulediff.model.measurement import Measurement
from joulediff.model.signature import Signature

Phase = Literal["forward", "backward", "optimizer"]


ValueKind = Literal["input", "parameter", "buffer", "produced"]


KernelKind = Literal["kernel", "memcpy", "memset", "cpu"]


Join = Literal["op", "module", "none"]


PassName = Literal["metered", "traced", "captured", "replayed"]


How = Literal["graph", "launches", "calls"]


Inputs = Literal["real", "drawn"]


PassStatus = Literal["done", "partial", "failed", "skipped"]


Setting = bool | int | float | str | None
# Longer texts are cut: a setting is for comparing, not for keeping data.
MAX_SETTING_CHARS = 200


# Vector loads are at most 16 bytes wide (CUDA); whether a tensor begins on such a border can change the kernel.
ALIGNMENT_BYTES = 16


def to_setting(value: object) -> Setting:
    """Return a value as a setting. Raises TypeError for what has no stable plain form."""
    if isinstance(value, str):
        # A lone surrogate, from a name that is no UTF-8, could not be stored.
        return value.encode("utf-8", "replace").decode()[:MAX_SETTING_CHARS]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if type(value).__name__ in ("dtype", "device", "layout", "memory_format"):
        return str(value).rpartition(".")[2]
    raise TypeError(f"{type(value).__name__} is no setting")


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor as it was between two writes to its memory.

    Two tensors that share memory are two values of one `storage`. A write makes a new value of every
    tensor that can see it, when that is next read: `previous` is what this place held before.
    """

    id: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    device: str
    storage: int
    kind: ValueKind
    name: str | None
    """`h.0.attn.weight` for a parameter or buffer, `output.logits` for what the step returned."""
    producer: int | None
    """The operator that made or last changed it; None for what was there before the step."""
    previous: int | None
    writers: tuple[int, ...]
    """Every operator whose write it shows and `previous` does not; the producer is the last of them."""
    signature: int | None
    repeats: int
    """How many times each signed element appears: more than 1 for an expanded tensor."""

    @property
    def item_bytes(self) -> int:
        """Return the bytes of one element."""
        return _item_bytes(self.dtype)

    @property
    def size_bytes(self) -> int:
        """Return the bytes that its elements take, each counted once however often it is repeated."""
        return math.prod(self.shape) * self.item_bytes // max(1, self.repeats)

    @property
    def is_aligned(self) -> bool:
        """Return whether the first element lies at a multiple of `ALIGNMENT_BYTES` from the storage's begin."""
        return self.offset * self.item_bytes % ALIGNMENT_BYTES == 0

    @property
    def form(self) -> Form:
        """Return the shape, strides and type."""
        return Form(self.shape, self.strides, self.dtype)


@lru_cache(maxsize=64)
def _item_bytes(dtype: str) -> int:
    """Return the bytes that the digits in the name of a type tell: 2 of `bfloat16`, 1 of `float8_e4m3fn` and `bool`."""
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return max(1, int(digits) // 8) if digits and not dtype.startswith("bool") else 1


@dataclass(frozen=True, slots=True)
class Form:
    """Shape, strides and type of a tensor: what an operator can be given a copy in."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a call path. `parent` is the caller's place in `Run.frames`; None at the step itself."""

    file: str
    line: int
    function: str
    owner: str | None
    """The library the file belongs to; None for the user's own code."""
    parent: int | None


@dataclass(frozen=True, slots=True)
class Op:
    """One executed operator.

    `arguments` and `returns` are JSON in which `{"tensor": n}` stands for `inputs[n]` and `outputs[n]`.
    """

    id: int
    name: str
    """As the framework's dispatcher knows it: `aten::addmm`."""
    overload: str
    arguments: str
    returns: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    """New values of arguments it changed in place; those it also returned are in `outputs` too."""
    frame: int | None
    """The innermost frame of its call path."""
    module: str | None
    """`transformer.h.3.mlp.act`; empty for the model itself, None outside of any module."""
    module_type: str | None
    phase: Phase
    forward: int | None
    """For a backward operator: the forward one whose gradient it computes."""
    thread: int
    """0 is the one that called the step."""
    device: str
    stream: int | None
    region: str | None
    """What `joulediff.region` named, outermost first with slashes."""
    grad: bool
    inference: bool
    autocast: str | None
    """The float type autocast prefers, where it is on."""
    compiled: bool
    """Recorded eagerly, while the program runs it inside a compiled region."""
    cpp: str | None = None
    """C++ frames, innermost first, one a line, where they were asked for."""
    replay: int | None = None
    """The distinct operator it is a call of; None for one that no device worked on, or without that pass."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One thing a device did in the traced step; times count from the step's begin."""

    name: str
    kind: KernelKind
    device: str
    stream: int
    start_s: float
    duration_s: float
    op: int | None
    module: str | None
    """Where only the compiled module that launched it is known."""
    join: Join
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    size_bytes: int | None = None
    """Bytes moved, for copies and fills."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Host time spent waiting for a device in the traced step."""

    name: str
    start_s: float
    duration_s: float
    op: int | None
    thread: int


@dataclass(frozen=True, slots=True)
class Replay:
    """One distinct operator, run again alone: the energy of a call above that of the resting device.

    The joules are None for one that was not measured so; `note` says why, or what is doubtful about the number.
    """

    op: int
    """The call whose inputs it was given."""
    domain: str
    energy_j: float | None = None
    low_j: float | None = None
    high_j: float | None = None
    source: Source = "replayed"
    """`estimated` where the meter estimates."""
    rest_w: float | None = None
    """What the resting device drew meanwhile."""
    call_s: float | None = None
    """Time of the device in one call."""
    cpu_s: float | None = None
    """CPU time of one call, for operators of the host."""
    calls: int = 0
    """How many calls were measured."""
    clock_mhz: float | None = None
    how: How | None = None
    """Many calls as one graph of the device, one launch after the other, or calls on the host."""
    inputs: Inputs | None = None
    """Values of a real call, or drawn from the same distribution."""
    copies: int = 1
    """How many sets of inputs took turns, so that the cache is as cold as in the program."""
    note: str | None = None

    @property
    def energy(self) -> Energy | None:
        """Return the energy of one call above that of the resting device."""
        if self.energy_j is None or self.low_j is None or self.high_j is None:
            return None
        return to_energy(self.energy_j, self.low_j, self.high_j, self.source)


@dataclass(frozen=True, slots=True)
class SourceText:
    """Lines of a file around a recorded one. `first` is the number of the first line."""

    file: str
    first: int
    text: str


@dataclass(frozen=True, slots=True)
class SettingSpan:
    """Operators that ran under other settings than `Run.settings`, from `first` to `last` with both.

    Only those that differ are there; None is one that could not be read meanwhile.
    """

    first: int
    last: int
    settings: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Pass:
    """How one pass over the program went. `note` says why it is not `done`."""

    name: PassName
    status: PassStatus
    seconds: float
    note: str | None = None


@dataclass(frozen=True)
class Run:
    """Everything recorded about one program. Without slots, because it keeps its index."""

    label: str
    program: str | None
    created: str
    """UTC, ISO 8601."""
    tool: str
    """The version of joulediff that recorded it."""
    measurement: Measurement | None = None
    traced_s: float | None = None
    """Wall time of the traced step."""
    passes: tuple[Pass, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know, such as passes that disagree."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """As they were outside of the step."""
    set_places: Mapping[str, str] = field(default_factory=dict)
    """Where the program's own code sets a setting: `file:line:function`."""
    spans: tuple[SettingSpan, ...] = ()
    """Where the step changed settings: in order, and none reaches into another."""
    ops: tuple[Op, ...] = ()
    values: tuple[Value, ...] = ()
    signatures: tuple[Signature, ...] = ()
    frames: tuple[Frame, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    waits: tuple[Wait, ...] = ()
    sources: tuple[SourceText, ...] = ()
    replays: tuple[Replay, ...] = ()

    def signature_of(self, value: int) -> Signature | None:
        """Return the signature of a value, expanded as the value is."""
        found = self.values[value]
        return None if found.signature is None else self.signatures[found.signature].repeated(found.repeats)

    def replays_of(self, op: int) -> tuple[Replay, ...]:
        """Return the replays of the distinct operator that `op` is a call of: one for each domain of the meters.

        They stand one after the other in `replays`, and `Op.replay` is the first of them.
        """
        first = self.ops[op].replay
        if first is None:
            return ()
        end, distinct = first + 1, self.replays[first].op
        while end < len(self.replays) and self.replays[end].op == distinct:
            end += 1
        return self.replays[first:end]

    @cached_property
    def index(self) -> RunIndex:
        """Return the index of this run, built at the first use."""
        return RunIndex(self)

    def call_path(self, op: int) -> tuple[Frame, ...]:
        """Return the frames that lead to an operator, outermost first."""
        return self.index.path_to(self.ops[op].frame)

    def line_text(self, file: str, line: int) -> str | None:
        """Return a line of code without its indentation; None if the run does not hold it."""
        return self.index.lines.get((file, line))


# Longer call paths are built anew each time: a damaged recording may hold one as long as its table of frames.
_MAX_KEPT_PATH = 256


class RunIndex:
    """Tables over the tuples of a run, each built at its first use."""

    def __init__(self, run: Run) -> None:
        # Not the run itself, which holds its index: a cycle would keep both until the next garbage collection.
        self._ops, self._values, self._frames = run.ops, run.values, run.frames
        self._kernels, self._sources = run.kernels, run.sources
        self._paths: dict[int | None, tuple[Frame, ...]] = {None: ()}

    @cached_property
    def kernels(self) -> Sequence[Sequence[int]]:
        """By operator: the places of its kernels in `Run.kernels`."""
        found: list[list[int]] = [[] for _ in self._ops]
        for at, kernel in enumerate(self._kernels):
            if kernel.op is not None:
                found[kernel.op].append(at)
        return found

    @cached_property
    def readers(self) -> Sequence[Sequence[int]]:
        """By value: the operators that read it, in order and each once."""
        found: list[list[int]] = [[] for _ in self._values]
        for op in self._ops:
            for value in dict.fromkeys(op.inputs):
                found[value].append(op.id)
        return found

    @cached_property
    def lines(self) -> Mapping[tuple[str, int], str]:
        """By file and number: the recorded lines of code, without indentation."""
        found: dict[tuple[str, int], str] = {}
        for source in self._sources:
            for at, text in enumerate(source.text.splitlines()):
                found.setdefault((source.file, source.first + at), text.strip())
        return found

    def path_to(self, frame: int | None) -> tuple[Frame, ...]:
        """Return the frames from the step to a frame, outermost first."""
        if frame in self._paths:
            return self._paths[frame]
        found, at = [], frame
        while at is not None:
            found.append(self._frames[at])
            at = self._frames[at].parent
        path = tuple(reversed(found))
        if len(path) <= _MAX_KEPT_PATH:
            self._paths[frame] = path
        return path


def work_of(
    run: Run, op: int, *, device: bool = True, alignment: bool = True, kernels: bool = True
) -> tuple[object, ...]:
    """Return a key that is equal for operators that ask a device for the same work, whatever their values.

    Function, overload, arguments, and the forms of the inputs always count. `device` adds the devices of the operator
    and its inputs, `alignment` that of the inputs, `kernels` the launched kernels with their grids and blocks.
    """
    found = run.ops[op]
    inputs = [run.values[value] for value in found.inputs]
    key: list[object] = [found.name, found.overload, found.arguments, tuple(value.form for value in inputs)]
    if device:
        key.append((found.device, *(value.device for value in inputs)))
    if alignment:
        key.append(tuple(value.is_aligned for value in inputs))
    if kernels:
        launched = [run.kernels[at] for at in run.index.kernels[op]]
        key.append(tuple((kernel.kind, kernel.name, kernel.grid, kernel.block) for kernel in launched))
    return tuple(key)
