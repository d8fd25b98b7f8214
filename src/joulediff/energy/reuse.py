"""How cold the inputs of an operator are in the program: whether the cache can still hold them when it runs.

A tensor is warm if less than a cache full was read and written since it was last touched. Replay gives warm inputs
again and again and lets cold ones take turns, so that each finds the cache as it finds it in the program.
"""

from __future__ import annotations

from collections.abc import Collection

from joulediff.energy.kinds import size_bytes
from joulediff.runs import Op, Run


def find_warm_inputs(run: Run, ops: Collection[int], cache_bytes: int) -> dict[int, tuple[bool, ...]]:
    """Return, for each of `ops`, which of its inputs the cache still holds."""
    working = {kernel.op for kernel in run.kernels if kernel.op is not None}
    touched_at: dict[int, int] = {}
    moved_bytes = 0
    found: dict[int, tuple[bool, ...]] = {}
    for op in run.ops:
        if op.id not in working:
            continue
        storages = [run.values[number].storage for number in op.inputs]
        if op.id in ops:
            found[op.id] = tuple(
                moved_bytes - touched_at[storage] < cache_bytes if storage in touched_at else False
                for storage in storages
            )
        moved_bytes += traffic_bytes(run, op)
        for number in _touched(op):
            touched_at[run.values[number].storage] = moved_bytes
    return found


def traffic_bytes(run: Run, op: Op) -> int:
    """Return the bytes of all tensors that an operator reads and makes, each once."""
    return sum(size_bytes(run.values[number]) for number in _touched(op))


def _touched(op: Op) -> set[int]:
    return {*op.inputs, *op.outputs, *op.writes}
