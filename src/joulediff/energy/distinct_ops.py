"""The distinct operators of a run: calls with the same work for the device count once, also if their values differ.

Two calls are calls of one distinct operator if function, arguments, shapes, strides, types, alignment and the kernels
they launched are equal. Settings hold for the whole run, so they need not be compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from joulediff.model.run import Op, Run, work_of


@dataclass(frozen=True, slots=True)
class DistinctOp:
    """The calls of one distinct operator; `op` is the call with the median device time."""

    op: int
    ops: tuple[int, ...]
    device: str
    time_s: float
    """Device time of all calls in the traced step."""
    call_s: float
    """Device time of the call `op`."""


def find_distinct_ops(run: Run) -> tuple[DistinctOp, ...]:
    """Return the distinct operators that a device worked on, the longest device time first."""
    times_s: dict[int, float] = {}
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for op, kernels in enumerate(run.index.kernels):
        if kernels:
            times_s[op] = sum(run.kernels[at].duration_s for at in kernels)
            groups[work_of(run, op)].append(op)
    found = [_distinct_op(run, ops, times_s) for ops in groups.values()]
    return tuple(sorted(found, key=lambda each: (-each.time_s, each.op)))


def _distinct_op(run: Run, ops: list[int], times_s: dict[int, float]) -> DistinctOp:
    by_time = sorted(ops, key=lambda op: (times_s[op], op))
    middle = by_time[len(by_time) // 2]
    return DistinctOp(middle, tuple(ops), run.ops[middle].device, sum(times_s[op] for op in ops), times_s[middle])


@dataclass(frozen=True, slots=True)
class Distances:
    """Bytes read and written since the memory of each input, and of the outputs, was last touched.

    Infinite for memory that the step had not touched before.
    """

    inputs: tuple[float, ...] = ()
    outputs: float = math.inf


def find_distances(run: Run, groups: Sequence[Sequence[int]], addresses: Sequence[int]) -> list[Distances]:
    """Return the median distances of each group of operators.

    `addresses` holds the address of each storage; 0 if it is not known.
    """
    found = _find_all(run, {op for group in groups for op in group}, addresses)
    return [_median([found[op] for op in group if op in found]) for group in groups]


def _median(calls: Sequence[Distances]) -> Distances:
    if not calls:
        return Distances()
    inputs = zip(*(call.inputs for call in calls), strict=True)
    return Distances(tuple(map(median_low, inputs)), median_low(call.outputs for call in calls))


def _find_all(run: Run, ops: Collection[int], addresses: Sequence[int]) -> Mapping[int, Distances]:
    touched_at: dict[object, int] = {}
    moved_bytes = 0
    found: dict[int, Distances] = {}

    def memory_of(number: int) -> object:
        storage = run.values[number].storage
        address = addresses[storage] if storage < len(addresses) else 0
        return (run.values[number].device, address) if address else storage

    def distance(number: int) -> float:
        at = touched_at.get(memory_of(number))
        return math.inf if at is None else float(moved_bytes - at)

    for op in run.ops:
        if not run.index.kernels[op.id]:
            continue
        if op.id in ops:
            made = [distance(number) for number in op.outputs if number not in op.inputs]
            found[op.id] = Distances(tuple(map(distance, op.inputs)), min(made, default=math.inf))
        moved_bytes += traffic_bytes(run, op)
        touched_at |= dict.fromkeys(map(memory_of, _touched(op)), moved_bytes)
    return found


def traffic_bytes(run: Run, op: Op) -> int:
    """Return the bytes of all tensors that an operator reads and writes, each once."""
    return sum(run.values[number].size_bytes for number in _touched(op))


def _touched(op: Op) -> set[int]:
    return {*op.inputs, *op.outputs, *op.writes}
