"""What replays must keep to beyond their single cells.

An energy has an interval that holds it, the rows of one distinct operator follow each other, one for each
domain, and operators refer to the first of them: readers rely on all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from joulediff.archive.plain import shown
from joulediff.errors import ArchiveError

_ENERGY = ("energy_j", "low_j", "high_j")


def check_replays(columns: Mapping[str, Sequence[Any]], referred: Sequence[int | None]) -> None:
    """Raise ArchiveError where replays contradict each other, themselves, or `referred`, the operators' references."""
    for row, cells in enumerate(zip(*(columns[name] for name in _ENERGY), strict=True)):
        _check_energy(row, *cells)
    ops = columns["op"]
    _check_order(ops, columns["domain"])
    for op, first in enumerate(referred):
        if first is not None and not _is_first(ops, first):
            raise ArchiveError(f"its operator {op} refers to row {first} in replays, which is not the first of its own")


def _check_energy(row: int, energy_j: float | None, low_j: float | None, high_j: float | None) -> None:
    place = f"its table replays, row {row}"
    if energy_j is low_j is high_j is None:
        return
    if energy_j is None or low_j is None or high_j is None:
        raise ArchiveError(f"{place} has an energy without an interval, or an interval without an energy")
    if not all(map(math.isfinite, (energy_j, low_j, high_j))):
        raise ArchiveError(f"{place} has an energy or an interval that is not finite")
    if not low_j <= energy_j <= high_j:
        raise ArchiveError(f"{place} is impossible: energy {energy_j} J outside its interval {low_j}..{high_j} J")


def _check_order(ops: Sequence[int], domains: Sequence[str]) -> None:
    begun: set[int] = set()
    of_one: set[str] = set()
    for row, (op, domain) in enumerate(zip(ops, domains, strict=True)):
        if _is_first(ops, row):
            if op in begun:
                raise ArchiveError(f"its table replays, row {row} is apart from the others of operator {op}")
            begun.add(op)
            of_one = set()
        if domain in of_one:
            raise ArchiveError(f"its table replays, row {row} is a second one of operator {op} for {shown(domain)}")
        of_one.add(domain)


def _is_first(ops: Sequence[int], row: int) -> bool:
    return row == 0 or ops[row] != ops[row - 1]
