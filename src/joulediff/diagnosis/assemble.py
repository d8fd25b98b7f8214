"""The diff as it is reported: both sides, the rows that sum to what was metered, and the findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.evidence.host import part_energy
from joulediff.diagnosis.significance import RowComparison
from joulediff.model.diff import (
    SCHEMA,
    ConditionDifference,
    Diff,
    DiffSide,
    Ledger,
    Ratio,
    Row,
    RowKind,
    RowVerdict,
    StepCost,
    Thresholds,
)
from joulediff.model.energy import Energy, add, to_energy
from joulediff.model.finding import Finding
from joulediff.model.pair import SIDES, SideName
from joulediff.model.stats import CONFIDENCE_SIGMAS
from joulediff.version import __version__

# So many names of what has no counterpart are told.
_NAMES = 6
_ROW_NAMES: dict[str, str] = {
    "idle": "(device idle)",
    "host": "(host: Python, launches)",
    "waits": "(host waits for a device)",
}
# A factor that stands for an end that is not known.
_MOST_LOG = math.log(1e6)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the rows. `row_of` has the finding of a row, `settled` the verdict on one that is none."""

    findings: Sequence[Finding] = ()
    row_of: Mapping[int, str] = field(default_factory=dict)
    settled: Mapping[int, RowVerdict] = field(default_factory=dict)
    notes: Sequence[str] = ()
    around: str | None = None
    """The finding that the energy around the operators belongs to."""


def assemble(
    sides: Comparison,
    rows: Sequence[RowComparison],
    work: Outcome,
    conditions: tuple[ConditionDifference, ...],
    thresholds: Thresholds,
    *,
    spread: float = 0.0,
) -> Diff:
    """Return the diff of two runs. `spread` is how far a program comes out elsewhere from recording to recording."""
    comparable = not any(each.serious for each in conditions)
    a, b = (sides.costs[side].total for side in SIDES)
    ratio, (delta_j, low_j, high_j) = _compare_totals(a, b, spread) if comparable else (None, (None, None, None))
    signed_j = sum(f.cost.delta_j if f.expensive == "a" else -f.cost.delta_j for f in work.findings)
    told = list(work.notes)
    if not any(row.group.kind == "equal" for row in rows):
        told.insert(0, "the two programs compute nothing that is equal: they may not do the same job")
    if a is None and b is None:
        told.insert(0, "no energy verdicts: neither run was metered")
    return Diff(
        schema=SCHEMA,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tool=__version__,
        a=_side(sides, "a"),
        b=_side(sides, "b"),
        ratio=ratio,
        delta_j=delta_j,
        delta_low_j=low_j,
        delta_high_j=high_j,
        comparable=comparable,
        condition_differences=conditions,
        explained_share=_explained(signed_j, delta_j, ratio),
        findings=tuple(work.findings),
        rows=_table(sides, rows, work, comparable=comparable and a is not None),
        ledger_a=_ledger(sides, "a"),
        ledger_b=_ledger(sides, "b"),
        thresholds=thresholds,
        notes=tuple(told),
        same_work=bool(rows) and all(row.same for row in rows) and not any(_left(sides, side) for side in SIDES),
    )


def _left(sides: Comparison, side: SideName) -> list[int]:
    """Return the operators of a side that no region holds."""
    matched = {op for region in sides.regions for op in ops_of(region, side)}
    return [op.id for op in sides.run(side).ops if op.id not in matched]


def _compare_totals(
    a: Energy | None, b: Energy | None, spread: float
) -> tuple[Ratio | None, tuple[float | None, float | None, float | None]]:
    if a is None or b is None or not (a.joules > 0 and b.joules > 0):
        return None, (None, None, None)
    doubt = spread * CONFIDENCE_SIGMAS
    # A ratio's ends lie as its logarithm's do: half as much and twice as much are as far from one.
    below = math.hypot(_log(a.joules, a.low), _log(b.high, b.joules), doubt, doubt)
    above = math.hypot(_log(a.high, a.joules), _log(b.joules, b.low), doubt, doubt)
    value, delta_j = a.joules / b.joules, a.joules - b.joules
    low_j = delta_j - math.hypot(a.joules - a.low, b.high - b.joules, doubt * a.joules, doubt * b.joules)
    high_j = delta_j + math.hypot(a.high - a.joules, b.joules - b.low, doubt * a.joules, doubt * b.joules)
    return Ratio(value, value * math.exp(-below), value * math.exp(min(above, _MOST_LOG))), (delta_j, low_j, high_j)


def _log(more: float, less: float) -> float:
    """Return how far one energy is above another, as a logarithm; a low end may be nothing."""
    return math.log(more / less) if more > 0 and less > 0 else _MOST_LOG


def _explained(signed_j: float, delta_j: float | None, ratio: Ratio | None) -> float | None:
    """Return the share of a difference that findings account for; None where there is none, or they say the reverse."""
    if not delta_j or ratio is None or ratio.low <= 1.0 <= ratio.high or signed_j / delta_j < 0:
        return None
    return signed_j / delta_j


def _side(sides: Comparison, side: SideName) -> DiffSide:
    run = sides.run(side)
    found = run.measurement
    matched = {op for region in sides.regions for op in ops_of(region, side)}
    names = Counter(op.name for op in run.ops if op.id not in matched)
    devices = {d.device for d in found.domains.values() if d.counted} if found is not None else set()
    state = next(iter(found.states), None) if found is not None else None
    clocks = list(found.clocks_mhz.values()) if found is not None else []
    return DiffSide(
        label=run.label,
        program=run.program,
        created=run.created,
        step=StepCost(
            None if found is None else found.energy,
            None if found is None else found.step_s,
            0 if found is None else found.repeats,
            0 if found is None else found.steps,
        ),
        device=", ".join(sorted(devices)),
        clock_mhz=clocks[0] if clocks else None,
        temperature_c=None if state is None else state.temperature_c,
        trustworthy=found is not None and found.trustworthy,
        warnings=() if found is None else found.warnings,
        notes=run.notes,
        ops=len(run.ops),
        unmatched=sum(names.values()),
        unmatched_names=tuple(f"{name} ×{count}" for name, count in names.most_common(_NAMES)),
        matched_share=len(matched) / len(run.ops) if run.ops else 1.0,
    )


def _ledger(sides: Comparison, side: SideName) -> Ledger:
    books = sides.costs[side].books
    run = sides.run(side)
    return Ledger(
        books.accounts,
        books.split,
        len({replay.op for replay in run.replays if replay.energy_j is not None}),
    )


def _table(sides: Comparison, rows: Sequence[RowComparison], work: Outcome, *, comparable: bool) -> tuple[Row, ...]:
    """Return every row; together they are what was metered on each side."""
    found = [_row(at, row, work, comparable=comparable) for at, row in enumerate(rows)]
    found.append(_unmatched(sides, comparable=comparable))
    kinds: tuple[RowKind, ...] = ("idle", "host", "waits")
    for kind in kinds:
        parts = [part_energy(sides.costs[side].books.accounts, kind) for side in SIDES]
        finding = work.around
        if any(part is not None for part in parts):
            verdict: RowVerdict = "finding" if finding else "noise" if comparable else "unknown"
            found.append(Row(_ROW_NAMES[kind], "", kind, 1, 0, 0, parts[0], parts[1], verdict, finding))
    rest = [_rest(sides.costs[side].total, [getattr(row, f"energy_{side}") for row in found]) for side in SIDES]
    if any(part is not None for part in rest):
        found.append(Row("(unexplained)", "", "unexplained", 1, 0, 0, rest[0], rest[1], "noise"))
    return tuple(row for row in found if row.energy_a is not None or row.energy_b is not None or row.ops_a or row.ops_b)


def _row(at: int, row: RowComparison, work: Outcome, *, comparable: bool) -> Row:
    verdict: RowVerdict = work.settled.get(at, "noise")
    if at in work.row_of:
        verdict = "finding"
    elif not comparable:
        verdict = "unknown"
    elif verdict == "noise" and not row.same and (row.energy_a is None) != (row.energy_b is None):
        only: RowVerdict = "only_a" if row.energy_b is None else "only_b"
        verdict = "unknown" if row.p_value is None else only
    group = row.group
    kind: RowKind = group.kind
    return Row(
        group.name,
        group.where,
        kind,
        len(group.regions),
        group.ops_a,
        group.ops_b,
        row.energy_a,
        row.energy_b,
        verdict,
        work.row_of.get(at),
        group.regions,
    )


def _unmatched(sides: Comparison, *, comparable: bool) -> Row:
    energies, counts = [], []
    for side in SIDES:
        run, costs = sides.run(side), sides.costs[side]
        left = _left(sides, side)
        loose = [i for i, kernel in enumerate(run.kernels) if kernel.op is None]
        parts = [costs.of(left), costs.books.total(loose) if loose else None]
        energies.append(add((i, part) for i, part in enumerate(parts) if part is not None))
        counts.append(len(left))
    verdict: RowVerdict = "unknown" if not comparable else "changed"
    return Row("no counterpart", "", "unmatched", 1, counts[0], counts[1], energies[0], energies[1], verdict)


def _rest(total: Energy | None, parts: Sequence[Energy | None]) -> Energy | None:
    """Return what rows leave of what was metered; may be negative."""
    known = [part for part in parts if part is not None]
    if total is None or not known:
        return total
    left_j = total.joules - sum(part.joules for part in known)
    half = math.hypot(total.high - total.low, *(part.high - part.low for part in known)) / 2
    return to_energy(left_j, left_j - half, left_j + half, total.source)
