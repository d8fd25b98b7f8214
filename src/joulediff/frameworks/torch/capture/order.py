"""Puts operators of several threads in an order that does not depend on how the threads ran.

Each task's operators stand where the task was started, as if it had run at once. So two recordings of a program, and
a program that does the same without threads, have one order. It holds only if no operator then comes before a write
that it saw, or after one that it did not see; otherwise operators keep the order in which they ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from joulediff.frameworks.torch.capture.threads import STEP, Key, is_foreign
from joulediff.model.run import Op, Value

_T = TypeVar("_T")
# Behind every task that was started between two operators.
_LAST = 1 << 62


class TaskOrder:
    """Collects the place of each operator in its task, and of each task in the one that started it."""

    def __init__(self) -> None:
        self._ops: list[tuple[Key, int]] = []
        self._counts: dict[Key, int] = {}
        self._started: dict[Key, int] = {}

    def start(self, key: Key, by: Key) -> None:
        """Note that task `by` starts task `key` now."""
        self._started[key] = self._counts.get(_line_of(by), 0)

    def note(self, key: Key) -> None:
        """Note an operator of a task."""
        line = _line_of(key)
        at = self._counts.get(line, 0)
        self._counts[line] = at + 1
        self._ops.append((key, at))

    def keys(self) -> list[Key]:
        """Return the task of each operator, in the order in which they ran."""
        return [key for key, _ in self._ops]

    def order(self) -> list[int]:
        """Return the operators, by their present numbers, in the order of their tasks."""
        places: dict[Key, tuple[int, ...]] = {STEP: ()}
        for key in {key for key, _ in self._ops}:
            self._place(key, places)
        return sorted(range(len(self._ops)), key=lambda op: (*places[self._ops[op][0]], self._ops[op][1], _LAST))

    def _place(self, key: Key, places: dict[Key, tuple[int, ...]]) -> tuple[int, ...]:
        line = _line_of(key)
        if line not in places:
            places[line] = (*self._place(line[:-1], places), self._started.get(line, 0), line[-1])
        places[key] = places[line]
        return places[line]


def _line_of(key: Key) -> Key:
    """Return the task whose operators are counted with those of a task.

    Threads that the step did not start, such as autograd's, work while the step waits: they are part of its order.
    """
    return STEP if is_foreign(key) else key


@dataclass(frozen=True, slots=True)
class Reordered:
    """Operators and values with new numbers. `value_ids`: from old numbers of values to new ones."""

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    value_ids: Mapping[int, int]


def reorder(ops: Sequence[Op], values: Sequence[Value], order: Sequence[int]) -> Reordered | None:
    """Return the operators in an order, with the values as they are then first seen; None if the order cannot be."""
    new = {old: at for at, old in enumerate(order)}
    if not _keeps_writes(ops, values, new):
        return None
    ids: dict[int, int] = {}
    for old in order:
        for value in (*ops[old].inputs, *ops[old].writes, *ops[old].outputs):
            ids.setdefault(value, len(ids))
    for value in range(len(values)):
        ids.setdefault(value, len(ids))
    return Reordered(
        tuple(_renumber_op(ops[old], new, ids) for old in order),
        tuple(_renumber_value(values[old], new, ids) for old in sorted(ids, key=ids.__getitem__)),
        ids,
    )


def _keeps_writes(ops: Sequence[Op], values: Sequence[Value], new: Mapping[int, int]) -> bool:
    """Return whether each operator keeps its place before or after each write to the memory that it uses."""
    last_use: dict[int, int] = {}
    last_write: dict[int, int] = {}
    for op in ops:
        at = new[op.id]
        if op.forward is not None and new[op.forward] > at:
            return False
        read = {values[v].storage for v in op.inputs}
        made = {values[v].storage for v in op.outputs if values[v].producer == op.id} - read  # without views of inputs
        written = made | {values[v].storage for v in op.writes}
        used = read | {values[v].storage for v in op.outputs}
        if any(last_use.get(each, -1) > at for each in written) or any(last_write.get(each, -1) > at for each in used):
            return False
        for each in written:
            last_write[each] = max(at, last_write.get(each, -1))
        for each in written | used:
            last_use[each] = max(at, last_use.get(each, -1))
    return True


def _renumber_op(op: Op, new: Mapping[int, int], ids: Mapping[int, int]) -> Op:
    return replace(
        op,
        id=new[op.id],
        inputs=tuple(ids[value] for value in op.inputs),
        outputs=tuple(ids[value] for value in op.outputs),
        writes=tuple(ids[value] for value in op.writes),
        forward=None if op.forward is None else new[op.forward],
    )


def _renumber_value(value: Value, new: Mapping[int, int], ids: Mapping[int, int]) -> Value:
    return replace(
        value,
        id=ids[value.id],
        producer=None if value.producer is None else new[value.producer],
        previous=None if value.previous is None else ids[value.previous],
        writers=tuple(new[writer] for writer in value.writers),
    )


def reorder_stretches(
    stretches: Sequence[tuple[int, int, _T]], order: Sequence[int]
) -> tuple[tuple[int, int, _T], ...]:
    """Return what holds for stretches of operators, first and last included, for the operators in another order."""
    by_op = {op: each for first, last, each in stretches for op in range(first, last + 1)}
    found: list[tuple[int, int, _T]] = []
    for _, places in groupby((at for at, op in enumerate(order) if op in by_op), key=lambda at: id(by_op[order[at]])):
        first, *rest = places
        found.append((first, rest[-1] if rest else first, by_op[order[first]]))
    return tuple(found)
