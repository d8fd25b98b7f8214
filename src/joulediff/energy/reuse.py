"""How cold the cache is for an operator in the program: how much passed through it since its memory was last touched.

Replay keeps these distances: an input or an output whose memory was touched a moment ago is used again and again,
one that was touched long ago takes turns with copies of itself. Memory is known by its address, because a program
gives memory back and gets it again, and what is overwritten in the cache never reaches the memory behind it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from joulediff.runs import Op, Run


@dataclass(frozen=True, slots=True)
class Distances:
    """Bytes read and written since the memory of each input, and of the outputs, was last touched.

    Infinite for memory that the step had not touched before.
    """

    inputs: tuple[float, ...] = ()
    outputs: float = math.inf


def find_distances(run: Run, kinds: Sequence[Sequence[int]], addresses: Sequence[int]) -> list[Distances]:
    """Return what is typical of the calls of each kind, which are given by their operators: the median distances.

    `addresses` tells where each storage began; 0 where it is not known.
    """
    found = _find_all(run, {op for kind in kinds for op in kind}, addresses)
    return [_median([found[op] for op in kind if op in found]) for kind in kinds]


def _median(calls: Sequence[Distances]) -> Distances:
    if not calls:
        return Distances()
    inputs = zip(*(call.inputs for call in calls), strict=True)
    return Distances(tuple(map(median_low, inputs)), median_low(call.outputs for call in calls))


def _find_all(run: Run, ops: Collection[int], addresses: Sequence[int]) -> Mapping[int, Distances]:
    working = {kernel.op for kernel in run.kernels if kernel.op is not None}
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
        if op.id not in working:
            continue
        if op.id in ops:
            made = [distance(number) for number in op.outputs if number not in op.inputs]
            found[op.id] = Distances(tuple(map(distance, op.inputs)), min(made, default=math.inf))
        moved_bytes += traffic_bytes(run, op)
        touched_at |= dict.fromkeys(map(memory_of, _touched(op)), moved_bytes)
    return found


def traffic_bytes(run: Run, op: Op) -> int:
    """Return the bytes of all tensors that an operator reads and makes, each once."""
    return sum(run.values[number].size_bytes for number in _touched(op))


def _touched(op: Op) -> set[int]:
    return {*op.inputs, *op.outputs, *op.writes}
