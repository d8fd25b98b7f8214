"""How far up a profile a finding stands: where somebody who only sorts operators by cost would meet it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from joulediff.energy.ledger import open_books
from joulediff.findings import Finding
from joulediff.report.grouping import Row, group_rows
from joulediff.runs import Run

_NUMBERS = re.compile(r"(?<![^.])\d+(?![^.])")


def rank_finding(run: Run, finding: Finding) -> tuple[int | None, int | None]:
    """Return the place of the finding's costliest operators in run A, by energy and by time of the device.

    Operators are grouped as `joulediff show` does. A finding has the names of its operators and their module, so its
    group is the costliest one of these; None for findings without operators, and for what was not measured.
    """
    if finding.kind == "host" or not finding.ops_a:
        return None, None
    rows = group_rows(run, "op", open_books(run))
    named = [row for row in rows if row.name in finding.ops_a]
    here = [row for row in named if _fold(row.where) == _fold(finding.where)]
    own = max(here or named, key=lambda row: (_joules(row), _seconds(row)), default=None)
    if own is None:
        return None, None
    return _place(_joules(own), map(_joules, rows)), _place(_seconds(own), map(_seconds, rows))


def _fold(where: str) -> str:
    return _NUMBERS.sub("*", where)


def _joules(row: Row) -> float:
    return 0.0 if row.energy is None else row.energy.joules


def _seconds(row: Row) -> float:
    return row.kernel_s or 0.0


def _place(cost: float, costs: Iterable[float]) -> int | None:
    return 1 + sum(other > cost for other in costs) if cost > 0.0 else None
