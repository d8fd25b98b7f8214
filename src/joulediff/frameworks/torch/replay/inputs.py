"""Keeps the inputs of an operator until it has been replayed.

Memory is kept, not tensors: tensors that share memory in the program share it here too, with the same alignment and
strides. Memory that the step never writes to is the program's own; everything else is a copy.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from joulediff.frameworks.torch.capture.arguments import Encoder, Facts
from joulediff.frameworks.torch.capture.dispatch_mode import Sieve, compiled_as_written, without_own_warnings
from joulediff.frameworks.torch.capture.hooks import watch_threads, watch_triton
from joulediff.frameworks.torch.capture.threads import STEP, Key, Tasks, is_foreign
from joulediff.frameworks.torch.graphs.rerun import GraphRuns
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Form, Inputs, Op, Run, Value
from joulediff.model.signature import Signature
from joulediff.pysource.programs import Step

if TYPE_CHECKING:
    import torch

# CUDA's allocator begins memory at multiples of this, so that an offset within it keeps its alignment.
ALIGNMENT_BYTES = 512
# Beyond this, a normal distribution cannot be represented in half precision.
LARGEST_DRAW = 6e4
# Whole numbers are drawn as 64-bit ones, and their bounds are kept as doubles, which are exact up to here.
LARGEST_WHOLE = 2.0**53


class _Piece(NamedTuple):
    """A tensor as a part of a buffer."""

    buffer: int
    offset_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(slots=True)
class KeptInputs:
    """The memory of one operator's inputs. `kind` is `real` for the values of a call."""

    kind: Inputs
    buffers: list[torch.Tensor] = field(default_factory=list)
    pieces: list[_Piece] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def tensors(self) -> list[torch.Tensor]:
        """Return the inputs themselves."""
        return [_cut(self.buffers[piece.buffer], piece) for piece in self.pieces]

    def turns(self, distances: Sequence[float], touched_bytes: int, most: int) -> list[int]:
        """Return how many copies of each buffer take turns; `distances` are those of the inputs."""
        found = []
        for number in range(len(self.buffers)):
            inside = [each for piece, each in zip(self.pieces, distances, strict=False) if piece.buffer == number]
            found.append(count_turns(min(inside, default=math.inf), touched_bytes, most))
        return found

    def copies(self, turns: Sequence[int]) -> list[KeptInputs]:
        """Return sets of the same inputs, in which the given number of copies of each buffer take turns."""
        pairs = zip(self.buffers, turns, strict=True)
        rows = [[buffer, *(buffer.clone() for _ in range(count - 1))] for buffer, count in pairs]
        return [
            KeptInputs(self.kind, [row[number % len(row)] for row in rows], self.pieces)
            for number in range(max(turns, default=1))
        ]

    def written(self, numbers: Collection[int]) -> set[int]:
        """Return the buffers of these inputs."""
        return {self.pieces[number].buffer for number in numbers}


def count_turns(distance: float, touched_bytes: int, most: int) -> int:
    """Return the number of copies so that about `distance` bytes pass before a copy is used again."""
    return max(1, min(most, most if math.isinf(distance) else 1 + int(distance // max(1, touched_bytes))))


def keep_inputs(tensors: Sequence[torch.Tensor], is_steady: Sequence[bool]) -> KeptInputs:
    """Return the inputs as they are now. Steady memory, which the step never writes to, is not copied."""
    import torch

    kept = KeptInputs("real")
    groups: dict[int, list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor.layout != torch.strided:
            raise JoulediffError("an input is not a plain tensor: conjugated, negated, sparse or nested")
        groups.setdefault(tensor.untyped_storage()._cdata, []).append(number)  # noqa: SLF001
    found: dict[int, _Piece] = {}
    for members in groups.values():
        spans = [_span_bytes(tensors[number]) for number in members]
        begin = min(low for low, _ in spans) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        first = tensors[members[0]]
        memory = _as_bytes(first, begin, max(high for _, high in spans))
        steady = all(is_steady[number] for number in members)
        kept.buffers.append(memory if steady else memory.clone())
        for number, (low, _) in zip(members, spans, strict=True):
            tensor = tensors[number]
            place = len(kept.buffers) - 1
            found[number] = _Piece(place, low - begin, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
    kept.pieces += [found[number] for number in range(len(tensors))]
    return kept


def draw_inputs(run: Run, op: Op) -> KeptInputs:
    """Return inputs whose values are drawn from the distributions of the recorded ones.

    Whole numbers stay between the smallest and the largest seen, so that an index stays inside its table.
    """
    import torch

    kept = KeptInputs("drawn")
    values = [run.values[number] for number in op.inputs]
    places: dict[int, int] = {}
    for storage in dict.fromkeys(value.storage for value in values):
        mine = [value for value in values if value.storage == storage]
        size = max(_end_bytes(value) for value in mine) - _begin_bytes(mine)
        places[storage] = len(kept.buffers)
        kept.buffers.append(torch.zeros(size, dtype=torch.uint8, device=mine[0].device))
    for number, value in zip(op.inputs, values, strict=True):
        mine = [each for each in values if each.storage == value.storage]
        dtype = _dtype(value)
        offset = value.offset * dtype.itemsize - _begin_bytes(mine)
        piece = _Piece(places[value.storage], offset, value.shape, value.strides, dtype)
        kept.pieces.append(piece)
        # An expanded tensor cannot be written to: its elements are those of one row.
        shape = tuple(min(n, 1) if stride == 0 else n for n, stride in zip(piece.shape, piece.strides, strict=True))
        _fill(_cut(kept.buffers[piece.buffer], piece._replace(shape=shape)), run.signature_of(number))
    return kept


def _begin_bytes(values: Sequence[Value]) -> int:
    begin = min(value.offset * _dtype(value).itemsize for value in values)
    return int(begin // ALIGNMENT_BYTES * ALIGNMENT_BYTES)


def _end_bytes(value: Value) -> int:
    if 0 in value.shape:
        return int(value.offset * _dtype(value).itemsize)
    if len(value.strides) != len(value.shape):
        raise JoulediffError("an input is not a plain tensor: sparse or nested")
    reach = sum((length - 1) * stride for length, stride in zip(value.shape, value.strides, strict=True))
    return int((value.offset + reach + 1) * _dtype(value).itemsize)


def _dtype(value: Value) -> torch.dtype:
    import torch

    found = getattr(torch, value.dtype, None)
    if not isinstance(found, torch.dtype):
        raise JoulediffError(f"this PyTorch has no type {value.dtype[:40]}")
    return found


def _fill(tensor: torch.Tensor, seen: Signature | None) -> None:
    """Fill a tensor with values like those seen; without a signature with zeros, which are a valid index."""
    import torch

    if seen is None or seen.low is None or seen.high is None or not seen.count or not tensor.numel():
        return
    low, high = max(seen.low, -LARGEST_DRAW), min(seen.high, LARGEST_DRAW)
    if not tensor.is_floating_point():
        low, high = max(seen.low, -LARGEST_WHOLE), min(seen.high, LARGEST_WHOLE)
    if not tensor.is_floating_point() or seen.integral:
        tensor.copy_(torch.randint(int(low), int(high) + 1, tensor.shape, device=tensor.device))
        return
    # Zeros are placed among the others, whose mean and spread follow from the sums.
    finite = seen.count - seen.nans - seen.positive_infs - seen.negative_infs
    others = max(1, finite - seen.zeros)
    mean = seen.sum_x / others
    sigma = max(0.0, seen.sum_x2 / others - mean * mean) ** 0.5
    drawn = torch.empty(tensor.shape, device=tensor.device, dtype=torch.float32)
    drawn.normal_(min(max(mean, low), high), min(sigma, LARGEST_DRAW)).clamp_(low, high)
    if seen.zeros:
        drawn[torch.rand(tensor.shape, device=tensor.device) < seen.zeros / finite] = 0.0
    tensor.copy_(drawn)


def _span_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where in its storage a tensor begins and ends."""
    size, begin = tensor.element_size(), tensor.storage_offset()
    if not tensor.numel():
        return begin * size, begin * size
    reach = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin * size, (begin + reach + 1) * size


def _as_bytes(tensor: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    import torch

    storage = tensor.untyped_storage()
    if storage.nbytes() < end:
        raise JoulediffError("the memory of an input was given back")
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(storage, begin, (end - begin,), (1,))


def _cut(buffer: torch.Tensor, piece: _Piece) -> torch.Tensor:
    import torch

    begin = buffer.storage_offset() + piece.offset_bytes
    empty: Any = torch.empty(0, dtype=piece.dtype, device=buffer.device)
    cut: Callable[..., torch.Tensor] = empty.set_
    return cut(buffer.untyped_storage(), begin // piece.dtype.itemsize, piece.shape, piece.strides)


def collect_inputs(
    step: Step, run: Run, ops: Collection[int], *, begin: Callable[[], None], tasks: Sequence[Key] = ()
) -> dict[int, KeptInputs | JoulediffError]:
    """Run `step` and return the inputs of each of `ops`, or why it has none that can be kept.

    One whose inputs were others this time, or had no room, is not there. `tasks` has the task that each thread of the
    run stands for.
    """
    collector = _Collector(run, ops, tasks)
    with ExitStack() as stack:
        stack.enter_context(watch_triton(collector.count_triton))
        stack.enter_context(without_own_warnings())
        stack.enter_context(compiled_as_written())
        stack.enter_context(GraphRuns(collector.sieve, lambda: collector.number).attached())
        begin()
        with collector.sieve.mode, watch_threads(collector.sieve) as collector.tasks:
            step()
    return collector.close()


class _Place:
    """The next operator of a task, among the operators that its thread has in the run."""

    __slots__ = ("next", "ops")

    def __init__(self, ops: Sequence[int]) -> None:
        self.ops = ops
        self.next = 0


class _Threads:
    """Finds the captured operators of a task. A thread that the step did not start may have another identity now."""

    def __init__(self, run: Run, tasks: Sequence[Key]) -> None:
        self._run = run
        self._keys = tasks or (STEP,)
        self._ops: dict[Key, list[int]] = {}
        for op in run.ops:
            key = self._keys[op.thread] if op.thread < len(self._keys) else (-1 - op.thread,)
            self._ops.setdefault(key, []).append(op.id)
        self._places: dict[Key, _Place] = {}
        self._taken: set[Key] = set()

    def of(self, key: Key, name: str) -> _Place:
        """Return the place in a task, of which an operator with this name runs now."""
        if key not in self._places:
            found = key if key in self._ops else self._find_like(key, name)
            self._taken.add(found)
            self._places[key] = _Place(self._ops.get(found, ()))
        return self._places[key]

    def _find_like(self, key: Key, name: str) -> Key:
        if not is_foreign(key):
            return key
        free = [each for each in self._ops if is_foreign(each) and each not in self._taken]
        return next((each for each in free if self._run.ops[self._ops[each][0]].name == name), key)


class _Collector:
    def __init__(self, run: Run, ops: Collection[int], tasks: Sequence[Key]) -> None:
        self._run = run
        self._threads = _Threads(run, tasks)
        self._is_open = True
        self.tasks: Tasks
        self._counted = 0
        self._ops = frozenset(ops)
        self._encoder = Encoder()
        self._lock = threading.RLock()
        # Views have a producer, too: only `writes` show that memory was changed.
        written = {run.values[value].storage for op in run.ops for value in op.writes}
        steady = {value.storage for value in run.values if value.producer is None} - written
        self._is_steady = [value.storage in steady for value in run.values]
        self.sieve = Sieve(self.take)
        self.found: dict[int, KeptInputs | JoulediffError] = {}

    def close(self) -> dict[int, KeptInputs | JoulediffError]:
        """Return what was found. A thread that outlives the step adds nothing to it."""
        with self._lock:
            self._is_open = False
            return self.found

    @property
    def number(self) -> int:
        """Return how many operators have run."""
        return self._counted

    def take(self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        with self._lock:
            place, number = self._count(facts.name)
            kept = self._keep(number, facts, args, kwargs) if number in self._ops and self._is_open else None
            if kept is not None and number is not None:
                self.found[number] = kept
        return self._run_counted(place, lambda: func(*args, **kwargs))

    def count_triton(self, name: str, run: Callable[[], object], __: tuple[Any, ...], ___: dict[str, Any]) -> object:
        me = threading.get_ident()
        if me in self.sieve.inside:
            return run()
        with self._lock:
            place, _ = self._count(f"triton::{name}")
        self.sieve.inside.add(me)
        try:
            return self._run_counted(place, run)
        finally:
            self.sieve.inside.discard(me)

    def _count(self, name: str) -> tuple[_Place, int | None]:
        """Count an operator of this thread's task, and return its number in the run; None if it has more there."""
        place = self._threads.of(self.tasks.here().key, name)
        at, place.next = place.next, place.next + 1
        self._counted += 1
        return place, place.ops[at] if at < len(place.ops) else None

    def _run_counted(self, place: _Place, run: Callable[[], object]) -> object:
        """Run a counted operator; the number of a failing one passes to the next, as in the captured pass."""
        try:
            return run()
        except BaseException:
            with self._lock:
                place.next -= 1
                self._counted -= 1
                if place.next < len(place.ops) and self._is_open:
                    self.found.pop(place.ops[place.next], None)
            raise

    def _keep(
        self, number: int | None, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KeptInputs | JoulediffError | None:
        if number is None:
            return None
        op = self._run.ops[number]
        _, tensors = self._encoder.arguments(args, kwargs)
        values = [self._run.values[value] for value in op.inputs]
        if (facts.name, facts.overload, len(tensors)) != (op.name, op.overload, len(values)):
            return None
        try:
            kept = keep_inputs(tensors, [self._is_steady[value] for value in op.inputs])
        except JoulediffError as error:
            return error
        except RuntimeError:  # there is no memory left for it now
            return None
        # Numbers may differ: an optimizer counts its steps.
        forms = [Form(piece.shape, piece.strides, str(piece.dtype).removeprefix("torch.")) for piece in kept.pieces]
        return kept if forms == [value.form for value in values] else None
