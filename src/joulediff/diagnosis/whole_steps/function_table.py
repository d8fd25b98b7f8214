"""The table of two steps that are compared as a whole: a row for each function, which sum to the metered energy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.whole_steps.function_rows import FunctionRow
from joulediff.model.diff import Row, RowVerdict
from joulediff.model.energy import difference_j, joules_of
from joulediff.model.finding import Finding
from joulediff.model.pair import SIDES

_DIFFERENT: tuple[RowVerdict, ...] = ("changed", "only_a", "only_b")


def function_table(work: Investigation, findings: Sequence[Finding], *, comparable: bool) -> list[Row]:
    """Return the rows of the functions, each with the finding that it belongs to."""
    total_j = max(joules_of(work.comparison.costs[side].total) for side in SIDES)
    verdicts = [row.verdict(work.limits, total_j) for row in work.functions]
    of_row = _findings_of_rows(work, findings, verdicts)
    return [
        _row(row, verdict if comparable else "unknown", of_row.get(at))
        for at, (row, verdict) in enumerate(zip(work.functions, verdicts, strict=True))
    ]


def _row(row: FunctionRow, verdict: RowVerdict, finding: str | None) -> Row:
    energies = row.energies
    return Row(
        row.name,
        row.where,
        "function",
        1,
        0,
        0,
        energies.a,
        energies.b,
        verdict if finding is None else "finding",
        finding,
    )


def _findings_of_rows(
    work: Investigation, findings: Sequence[Finding], verdicts: Sequence[RowVerdict]
) -> Mapping[int, str]:
    """Return which finding each row belongs to: the one in its function, or the only one for all that differ."""
    found: dict[int, str] = {}
    for draft, finding in zip(work.drafts, findings, strict=True):
        open_rows = [at for at, verdict in enumerate(verdicts) if at not in found and verdict in _DIFFERENT]
        mine = [at for at in open_rows if _costs_more(work.functions[at], draft)]
        if len(findings) > 1 or not (draft.is_whole_cause and draft.confirmed):
            place = draft.lead.cause.locations.of(draft.expensive)
            mine = [at for at in mine if place is not None and work.functions[at].is_in(draft.expensive, place)]
        found.update(dict.fromkeys(mine, finding.id))
    return found


def _costs_more(row: FunctionRow, draft: Draft) -> bool:
    return math.copysign(1.0, difference_j(*row.energies)) == (1.0 if draft.expensive == "a" else -1.0)
