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
from typing import Literal, get_args

from joulediff.model.display import Displayed
from joulediff.model.energy import Energy, Source, to_energy
from joulediff.model.measurement import Measurement, cost_text
from joulediff.model.signature import Signature, compare

Phase = Literal["forward", "backward", "optimizer"]


ValueKind = Literal["input", "parameter", "buffer", "produced"]


KernelKind = Literal["kernel", "memcpy", "memset", "cpu"]


Join = Literal["op", "fused", "module", "none"]
"""`fused`: the kernel is compiled code that computes `op` and the operators in `members`."""


PassName = Literal["metered", "sampled", "traced", "captured", "replayed"]
PASSES: tuple[PassName, ...] = get_args(PassName)


How = Literal["graph", "launches", "calls", "loop"]


Inputs = Literal["real", "drawn"]


HostKind = Literal["line", "gc"]


PassStatus = Literal["done", "partial", "failed", "skipped"]


Setting = bool | int | float | str | None
# Longer texts are cut: settings are compared, they do not store data.
MAX_SETTING_CHARS = 200


# Vector loads are at most 16 bytes wide (CUDA); whether a tensor begins on such a border can change the kernel.
ALIGNMENT_BYTES = 16


def to_setting(value: object) -> Setting:
    """Return a value as a setting. Raises TypeError for a type without a stable plain form."""
    if isinstance(value, str):
        # A lone surrogate, from a name that is not UTF-8, cannot be stored.
        return value.encode("utf-8", "replace").decode()[:MAX_SETTING_CHARS]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if type(value).__name__ in ("dtype", "device", "layout", "memory_format"):
        return str(value).rpartition(".")[2]
    raise TypeError(f"{type(value).__name__} cannot be a setting")


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor as it was between two writes to its memory.

    Two tensors that share memory are two values of one `storage`. After a write, each tensor that shares the
    memory gets a new value when it is next read; `previous` is its value before.
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
    """`h.0.attn.weight` for a parameter or buffer, `output.logits` for an output of the step."""
    producer: int | None
    """The operator that made or last changed it; None for a tensor that existed before the step."""
    previous: int | None
    writers: tuple[int, ...]
    """The operators that wrote to it since `previous`, or that made it; the producer is the last one."""
    signature: int | None
    repeats: int
    """Number of times each signed element appears: more than 1 for an expanded tensor."""

    @property
    def item_bytes(self) -> int:
        """Return the bytes of one element."""
        return _item_bytes(self.dtype)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its elements; an element that is repeated counts once."""
        return math.prod(self.shape) * self.item_bytes // max(1, self.repeats)

    @property
    def is_aligned(self) -> bool:
        """Return whether the offset of the first element is a multiple of `ALIGNMENT_BYTES`."""
        return self.offset * self.item_bytes % ALIGNMENT_BYTES == 0

    @property
    def form(self) -> Form:
        """Return the shape, strides and type."""
        return Form(self.shape, self.strides, self.dtype)


@lru_cache(maxsize=64)
def _item_bytes(dtype: str) -> int:
    """Return the bytes of an element by the digits in the type: 2 for `bfloat16`, 1 for `float8_e4m3fn` and `bool`."""
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return max(1, int(digits) // 8) if digits and not dtype.startswith("bool") else 1


@dataclass(frozen=True, slots=True)
class Form:
    """Shape, strides and type of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a call path. `parent` is the caller's place in `Run.frames`; None for the step itself."""

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
    """The name in the framework's dispatcher: `aten::addmm`."""
    overload: str
    arguments: str
    returns: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    """New values of arguments that it changed in place; values that it also returned are in `outputs` too."""
    frame: int | None
    """The innermost frame of its call path."""
    module: str | None
    """`transformer.h.3.mlp.act`; empty for the model itself, None outside of any module."""
    module_type: str | None
    phase: Phase
    forward: int | None
    """For a backward operator: the forward one whose gradient it computes."""
    thread: int
    """0 is the thread that called the step."""
    device: str
    stream: int | None
    region: str | None
    """The names given by `joulediff.region`, outermost first, joined by slashes; not a matched region."""
    grad: bool
    inference: bool
    autocast: str | None
    """The float type of autocast; None if it is off."""
    compiled: bool
    """Whether the program runs it in a compiled module; it was recorded eagerly."""
    cpp: str | None = None
    """C++ frames, innermost first, one per line; None unless requested."""
    replay: int | None = None
    """The first replay of its distinct operator; None if no device ran it, or without replays."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, copy or fill that a device ran in the traced step; times count from the start of the step."""

    name: str
    kind: KernelKind
    device: str
    stream: int
    start_s: float
    duration_s: float
    op: int | None
    module: str | None
    """The compiled module that launched it, where its operator is unknown."""
    join: Join
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    size_bytes: int | None = None
    """Bytes moved, for copies and fills."""
    members: tuple[int, ...] = ()
    """The other operators that it computes together with `op`: compiled code fuses operators into one kernel."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that the host waited for a device in the traced step."""

    name: str
    start_s: float
    duration_s: float
    op: int | None
    thread: int


@dataclass(frozen=True, slots=True)
class HostSample:
    """Time per step that the thread of the step spent in one line, by one call path, in the sampled pass."""

    frame: int | None
    """The innermost frame; a function of C counts in the line that calls it."""
    kind: HostKind
    """`gc` is garbage collection that began in that line."""
    time_s: float
    cpu_s: float
    """The part of it in which the thread ran; in the rest it waited, or other programs had the CPU."""
    count: int
    """Number of samples; for `gc`, of collections."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the host was sampled, and the step time with and without it."""

    steps: int
    period_s: float
    step_s: float
    """Time of a step while it was sampled."""
    plain_step_s: float
    """Time of a step without sampling, measured in alternation."""

    @property
    def overhead_share(self) -> float:
        """Return the extra time of a sampled step as a share; below 0 by noise."""
        return self.step_s / self.plain_step_s - 1 if self.plain_step_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """The energy of one call of a distinct operator, run again alone, above the energy of the idle device.

    The joules are None for an operator that was not measured; `note` gives the reason, or a doubt about the number.
    """

    op: int
    """The call that its inputs are from."""
    domain: str
    energy_j: float | None = None
    low_j: float | None = None
    high_j: float | None = None
    source: Source = "replayed"
    """`estimated` for a meter that estimates."""
    rest_w: float | None = None
    """Power of the idle device at that time."""
    call_s: float | None = None
    """Device time of one call."""
    cpu_s: float | None = None
    """CPU time of one call, for operators of the host."""
    calls: int = 0
    """Number of measured calls."""
    clock_mhz: float | None = None
    how: How | None = None
    """Calls in one device graph, single launches, calls on the host from Python, or from a loop in C++."""
    inputs: Inputs | None = None
    """Values of a real call, or random values of the same distribution."""
    copies: int = 1
    """Number of input sets used one after the other, so that the cache is as cold as in the program."""
    note: str | None = None
    beside_j: float | None = None
    """Energy of the loop around one call, which was subtracted; None if it was too little to be measured."""

    @property
    def is_measured(self) -> bool:
        """Return whether the operator could be run again and measured."""
        return self.energy_j is not None

    @property
    def energy(self) -> Energy | None:
        """Return the energy of one call above that of the idle device; None if it was not measured."""
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
    """Operators from `first` to `last`, both included, that ran under other settings than `Run.settings`.

    `settings` holds only those that differ; None is a setting that could not be read at that time.
    """

    first: int
    last: int
    settings: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Pass:
    """The outcome of one pass over the program. `note` gives the reason if it is not `done`."""

    name: PassName
    status: PassStatus
    seconds: float
    note: str | None = None


@dataclass(frozen=True)
class Run(Displayed):
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
    """Messages for the reader, for example about passes that disagree."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """The settings outside of the step."""
    set_places: Mapping[str, str] = field(default_factory=dict)
    """Where the user's own code sets a setting: `file:line:function`."""
    state: Mapping[str, Setting] = field(default_factory=dict)
    """The plain values that the step can reach and does not change, by path: `model.config.use_cache`."""
    state_places: Mapping[str, str] = field(default_factory=dict)
    """Where the user's own code sets a value of `state`, or makes the object at the begin of its path."""
    spans: tuple[SettingSpan, ...] = ()
    """Spans in which the step changed settings, in order and without overlap."""
    ops: tuple[Op, ...] = ()
    values: tuple[Value, ...] = ()
    signatures: tuple[Signature, ...] = ()
    frames: tuple[Frame, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    waits: tuple[Wait, ...] = ()
    sources: tuple[SourceText, ...] = ()
    replays: tuple[Replay, ...] = ()
    sampling: Sampling | None = None
    host_samples: tuple[HostSample, ...] = ()

    def __repr__(self) -> str:
        found = self.measurement
        cost = "not measured" if found is None else cost_text(found.energy, found.step_s)
        return f"<Run {self.label}: {cost}, {len(self.ops):,} ops, {len(self.passes)} passes>"

    def signature_of(self, value: int) -> Signature | None:
        """Return the signature of a value, expanded as the value is."""
        found = self.values[value]
        return None if found.signature is None else self.signatures[found.signature].repeated(found.repeats)

    def replays_of(self, op: int) -> tuple[Replay, ...]:
        """Return the replays of the distinct operator of a call: one for each domain of the meters.

        They are consecutive in `replays`, and `Op.replay` is the first of them.
        """
        first = self.ops[op].replay
        if first is None:
            return ()
        end, distinct = first + 1, self.replays[first].op
        while end < len(self.replays) and self.replays[end].op == distinct:
            end += 1
        return self.replays[first:end]

    @property
    def is_plain(self) -> bool:
        """Whether the program uses no framework that is recorded: only the outputs of its step were captured."""
        status = {each.name: each.status for each in self.passes}
        return not self.ops and status.get("traced") == "skipped" and status.get("captured") == "done"

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


# Kernels that add in varying order round differently.
_SAME_RESULT = 1e-5


class RunIndex:
    """Tables over the tuples of a run, each built at its first use."""

    def __init__(self, run: Run) -> None:
        # Not the run itself, which holds its index: a cycle would keep both until the next garbage collection.
        self._ops, self._values, self._frames = run.ops, run.values, run.frames
        self._kernels, self._sources, self._signatures = run.kernels, run.sources, run.signatures
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
    def fused(self) -> Mapping[int, int]:
        """By operator that compiled code computes: the operator that has its kernel, of several the first."""
        found: dict[int, int] = {}
        for kernel in self._kernels:
            if kernel.op is not None and kernel.join == "fused":
                for op in (kernel.op, *kernel.members):
                    found.setdefault(op, kernel.op)
        return found

    def is_costed(self, op: int) -> bool:
        """Return whether the kernels of an operator are known: none of an operator means that it needs none.

        For compiled code that is so if each of its kernels has an operator.
        """
        return not self._ops[op].compiled or not self._has_loose_kernels or bool(self.kernels[op]) or op in self.fused

    @cached_property
    def _has_loose_kernels(self) -> bool:
        return any(kernel.op is None for kernel in self._kernels) or not self._kernels

    @cached_property
    def readers(self) -> Sequence[Sequence[int]]:
        """By value: the operators that read it, in order and each once."""
        found: list[list[int]] = [[] for _ in self._values]
        for op in self._ops:
            for value in dict.fromkeys(op.inputs):
                found[value].append(op.id)
        return found

    @cached_property
    def same_before(self) -> Sequence[int]:
        """By operator: the first operator of the run that did the same on the same values; itself if none did.

        The same operator with the same arguments on equal inputs, whose outputs are equal too: random numbers differ.
        """
        found: list[int] = []
        values: dict[int, object] = {}
        first_of: dict[object, list[int]] = {}
        for op in self._ops:
            inputs = tuple(self._value_class(values, value) for value in op.inputs)
            known = first_of.setdefault((op.name, op.overload, op.arguments, inputs), [])
            first = next((each for each in known if self._has_same_results(each, op.id)), op.id)
            if first == op.id:
                known.append(first)
            found.append(first)
            for at, value in enumerate((*op.outputs, *op.writes)):
                values.setdefault(value, (first, at))
        return found

    def _value_class(self, known: dict[int, object], value: int) -> object:
        """Return a key of a value: the operator that made it, or the content of a tensor that the step was given."""
        if value not in known:
            found = self._values[value]
            content = None if found.signature is None else self._signatures[found.signature]
            known[value] = ("given", value) if content is None else (content, found.shape, found.dtype)
        return known[value]

    def _has_same_results(self, one: int, other: int) -> bool:
        a, b = ([*self._ops[op].outputs, *self._ops[op].writes] for op in (one, other))
        return len(a) == len(b) and all(self._is_same_result(x, y) for x, y in zip(a, b, strict=True))

    def _is_same_result(self, x: int, y: int) -> bool:
        if self._values[x].form != self._values[y].form:
            return False
        a, b = self._values[x].signature, self._values[y].signature
        if a is None or b is None:
            return a is b
        return compare(self._signatures[a], self._signatures[b], tolerance=_SAME_RESULT, extremes=True)

    @cached_property
    def ops_by_frame(self) -> Mapping[int | None, Sequence[int]]:
        """By the innermost frame: the operators with that call path, in order."""
        found: dict[int | None, list[int]] = {}
        for op in self._ops:
            found.setdefault(op.frame, []).append(op.id)
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


def is_view(run: Run, op: int) -> bool:
    """Return whether an operator only returns views of its inputs."""
    found = run.ops[op]
    memory = {run.values[value].storage for value in found.inputs}
    return bool(found.outputs) and not found.writes and all(run.values[v].storage in memory for v in found.outputs)


def work_of(
    run: Run, op: int, *, device: bool = True, alignment: bool = True, kernels: bool = True
) -> tuple[object, ...]:
    """Return a key that is equal for operators with the same work for a device, also if their values differ.

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
