"""What a change did to the operators of a step: those that are gone, and those that are new.

Operators are compared by name, arguments, and the shapes and types of their inputs, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.significance import RowComparison
from joulediff.model.pair import SideName, other_side
from joulediff.model.run import Run, is_view

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """Operators that a change took away and brought, by what they do."""

    removed: frozenset[Key]
    added: frozenset[Key]

    @property
    def is_nothing(self) -> bool:
        """Whether the step runs the same operators with and without the change."""
        return not self.removed and not self.added

    @property
    def only_removes(self) -> bool:
        """Whether every new operator is one that is gone in another form, such as on another layout."""
        return {key[0] for key in self.added} <= {key[0] for key in self.removed}

    def affects(self, comparison: Comparison, side: SideName, row: RowComparison) -> bool:
        """Return whether a row has an operator of the expensive side that is gone, or one of the cheap side's new."""
        mine = self._has(comparison.run(side), _ops(row, side), self.removed)
        return mine or self._has(comparison.run(other_side(side)), _ops(row, other_side(side)), self.added)

    @staticmethod
    def _has(run: Run, ops: Iterable[int], keys: frozenset[Key]) -> bool:
        return any(key_of(run, op) in keys for op in ops)


def find_effect(before: Run, after: Run) -> Effect:
    """Return what a change did; views do no work and do not count."""
    left, right = Counter(_working(before)), Counter(_working(after))
    return Effect(frozenset(left - right), frozenset(right - left))


def _working(run: Run) -> Iterator[Key]:
    return (key_of(run, op.id) for op in run.ops if not is_view(run, op.id))


def key_of(run: Run, op: int) -> Key:
    """Return what an operator does, without its place in the program."""
    found = run.ops[op]
    forms = tuple(
        (run.values[value].shape, run.values[value].strides, run.values[value].dtype) for value in found.inputs
    )
    return (found.name, found.overload, found.arguments, forms)


def _ops(row: RowComparison, side: SideName) -> Iterator[int]:
    return (op for region in row.members for op in ops_of(region, side))
