"""What some operators of a run need to be run one after the other.

A write in place makes a new value of the same memory, so the tensor behind a value is found through `previous`.
"""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.runs import Op, Run


class Dataflow:
    """Operators of a run in order. `needed` are the values to give; the others are made on the way.

    `sources` has for each operator the values under which its inputs are known.
    """

    def __init__(self, run: Run, ops: Sequence[int]) -> None:
        self._run = run
        self._members = frozenset(ops)
        self._known: set[int] = set()
        needed: dict[int, None] = {}
        self.sources = [self._find_sources(run.ops[op], needed) for op in ops]
        self.needed = tuple(needed)

    def locate(self, value: int) -> int | None:
        """Return the value whose tensor is this one's after all have run; None for one that is not known."""
        at: int | None = value
        while at is not None and at not in self._known:
            found = self._run.values[at]
            at = found.previous if self._members.intersection(found.writers) else None
        return at

    def _find_sources(self, op: Op, needed: dict[int, None]) -> list[int]:
        found = []
        for value in op.inputs:
            at = self.locate(value)
            if at is None:
                at = value
                needed[value] = None
                self._known.add(value)
            found.append(at)
        self._known.update(op.outputs)
        return found
