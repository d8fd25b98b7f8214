"""The distinct operators of a run: calls that ask the device for the same work, whatever their values.

Two calls are of one kind if function, arguments, shapes, strides, types, alignment and the kernels they launched are
the same. Settings are those of the whole run, so they need not be compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from joulediff.runs import Op, Run

# Vector loads are at most 16 bytes wide (CUDA); whether a tensor begins on such a border can change the kernel.
ALIGNMENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Kind:
    """Calls of one distinct operator; `op` is the one whose device time is the median."""

    op: int
    ops: tuple[int, ...]
    device: str
    time_s: float
    """Device time of all calls in the traced step."""
    call_s: float
    """That of the call `op`."""


def find_kinds(run: Run) -> tuple[Kind, ...]:
    """Return the distinct operators that a device worked on, the longest device time first."""
    kernels: defaultdict[int, list[str]] = defaultdict(list)
    times_s: defaultdict[int, float] = defaultdict(float)
    for kernel in run.kernels:
        if kernel.op is not None:
            kernels[kernel.op].append(f"{kernel.kind} {kernel.name} {kernel.grid} {kernel.block}")
            times_s[kernel.op] += kernel.duration_s
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for number, names in kernels.items():
        op = run.ops[number]
        groups[op.name, op.overload, op.arguments, op.device, _forms(run, op), tuple(names)].append(number)
    found = [_kind(run, sorted(ops), times_s) for ops in groups.values()]
    return tuple(sorted(found, key=lambda kind: (-kind.time_s, kind.op)))


def _forms(run: Run, op: Op) -> tuple[object, ...]:
    values = (run.values[number] for number in op.inputs)
    return tuple(
        (v.shape, v.strides, v.dtype, v.device, v.offset * v.item_bytes % ALIGNMENT_BYTES == 0) for v in values
    )


def _kind(run: Run, ops: list[int], times_s: dict[int, float]) -> Kind:
    by_time = sorted(ops, key=lambda op: (times_s[op], op))
    middle = by_time[len(by_time) // 2]
    return Kind(middle, tuple(ops), run.ops[middle].device, sum(times_s[op] for op in ops), times_s[middle])
