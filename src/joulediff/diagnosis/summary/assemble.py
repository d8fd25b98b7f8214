"""Assemble the diff: both sides, the rows that sum to the metered energy, the ledgers and the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from joulediff.diagnosis.build import build_finding
from joulediff.diagnosis.comparison import Comparison, name_divergence, ops_of
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.host.idle_device import part_energy
from joulediff.diagnosis.significance import RowComparison
from joulediff.diagnosis.summary.also_differs import find_also_differs
from joulediff.diagnosis.summary.named_regions import compare_named_regions
from joulediff.diagnosis.summary.not_explained import Remainder, explained_j, find_remainder
from joulediff.diagnosis.whole_steps.function_table import function_table
from joulediff.energy.device_time import is_gpu
from joulediff.energy.unseen import find_unseen
from joulediff.model.diff import (
    SCHEMA,
    ConditionDifference,
    Diff,
    DiffSide,
    Ledger,
    Row,
    RowKind,
    RowVerdict,
    StepCost,
)
from joulediff.model.energy import Energy, Ratio, add_known, ratio, remainder, subtract
from joulediff.model.finding import BASES, Finding
from joulediff.model.measurement import Measurement
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.stats import CONFIDENCE_SIGMAS
from joulediff.version import __version__

# Number of names of unmatched operators that are reported.
_NAMES = 6
_NOT_SAMPLED = "(in no sampled function)"
_ROW_NAMES: dict[str, str] = {
    "idle": "(device idle)",
    "host": "(host: Python, launches)",
    "waits": "(host waits for a device)",
}


@dataclass(frozen=True, slots=True)
class _Numbered:
    """The findings, and which of them each row of the comparison belongs to."""

    findings: tuple[Finding, ...]
    of_row: Mapping[int, str]
    of_around: str | None
    """The finding that holds the energy around operators."""


def assemble(work: Investigation, conditions: tuple[ConditionDifference, ...], *, spread: float = 0.0) -> Diff:
    """Return the diff of two runs; `spread` is the standard deviation of a step between recordings, as a share."""
    comparison, rows = work.comparison, work.rows
    comparable = not any(each.serious for each in conditions)
    a, b = (comparison.costs[side].total for side in SIDES)
    doubt = spread * CONFIDENCE_SIGMAS
    a_over_b = ratio(a, b, error=doubt) if comparable else None
    delta = None if a is None or b is None or a_over_b is None else subtract(a, [b], error=doubt)
    delta_j, low_j, high_j = (None, None, None) if delta is None else (delta.joules, delta.low, delta.high)
    numbered = _number(work.drafts)
    table = _table(work, numbered, comparable=comparable and a is not None)
    rest = find_remainder(work, numbered.findings, table, delta=delta, ratio=a_over_b)
    is_same = bool(rows) and all(row.same for row in rows) and not any(_unmatched_ops(comparison, x) for x in SIDES)
    return Diff(
        schema=SCHEMA,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tool=__version__,
        a=_side(comparison, "a"),
        b=_side(comparison, "b"),
        ratio=a_over_b,
        delta_j=delta_j,
        delta_low_j=low_j,
        delta_high_j=high_j,
        comparable=comparable,
        condition_differences=conditions,
        explained_share=_explained(explained_j(work.drafts, numbered.findings), delta_j, a_over_b),
        findings=numbered.findings,
        rows=tuple(_shown(table, rest)),
        ledger_a=_ledger(comparison, "a"),
        ledger_b=_ledger(comparison, "b"),
        thresholds=work.limits,
        notes=tuple(_notes(work)),
        not_explained=None if rest is None else rest.found,
        also_differs=find_also_differs(work, numbered.findings),
        same_work=is_same,
        divergences=tuple(name_divergence(comparison.a, comparison.b, each) for each in comparison.divergences),
        outputs_agree=comparison.outputs_agree,
        named_regions=compare_named_regions(comparison),
    )


def _number(drafts: Sequence[Draft]) -> _Numbered:
    findings = tuple(build_finding(draft, number) for number, draft in enumerate(drafts, 1))
    pairs = list(zip(drafts, findings, strict=True))
    of_row = {row: finding.id for draft, finding in pairs for row in draft.rows}
    of_around = next((finding.id for draft, finding in pairs if draft.holds_around), None)
    return _Numbered(findings, of_row, of_around)


def _notes(work: Investigation) -> Iterator[str]:
    if all(work.comparison.costs[side].total is None for side in SIDES):
        yield "no energy verdicts: neither run was metered"
    if not work.comparison.is_whole_step and not any(row.group.kind == "equal" for row in work.rows):
        yield "the two programs compute nothing that is equal: they may not do the same job"
    yield from work.notes


def _unmatched_ops(comparison: Comparison, side: SideName) -> list[int]:
    """Return the operators of a side that are in no region."""
    matched = {op for region in comparison.regions for op in ops_of(region, side)}
    return [op.id for op in comparison.run(side).ops if op.id not in matched]


def _explained(signed_j: float, delta_j: float | None, a_over_b: Ratio | None) -> float | None:
    """Return the share of the difference that findings explain, at most all of it.

    None without a difference, or if they explain the reverse. More than all of it is subtracted elsewhere, or noise.
    """
    if not delta_j or a_over_b is None or a_over_b.may_be_one or signed_j / delta_j < 0:
        return None
    return min(1.0, signed_j / delta_j)


def _side(comparison: Comparison, side: SideName) -> DiffSide:
    run = comparison.run(side)
    found = run.measurement
    matched = {op for region in comparison.regions for op in ops_of(region, side)}
    if comparison.is_whole_step:  # its operators were not matched with anything
        matched = {op.id for op in run.ops}
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
        unmet=() if found is None else _unmet(found),
        unseen=find_unseen(run, comparison.costs[side].books),
    )


def _unmet(measured: Measurement) -> tuple[str, ...]:
    """Return the names of conditions that did not hold, but for those of a GPU that rested."""
    resting = {name for name, domain in measured.domains.items() if domain.rested}
    return tuple(dict.fromkeys(c.name for c in measured.conditions if not c.ok and c.domain not in resting))


def _ledger(comparison: Comparison, side: SideName) -> Ledger:
    books = comparison.costs[side].books
    run = comparison.run(side)
    return Ledger(
        books.accounts,
        books.split,
        len({replay.op for replay in run.replays if replay.is_measured}),
        books.exceeds_meter,
    )


def _shown(rows: Sequence[Row], rest: Remainder | None) -> Iterator[Row]:
    """Yield the rows that have energy or operators. Rows that hold an unexplained difference are not noise."""
    for at, row in enumerate(rows):
        is_open = rest is not None and at in rest.rows and row.verdict == "noise"
        if row.energy_a is not None or row.energy_b is not None or row.ops_a or row.ops_b:
            yield replace(row, verdict="changed") if is_open else row


def _table(work: Investigation, numbered: _Numbered, *, comparable: bool) -> tuple[Row, ...]:
    """Return every row, those of the investigation first; together they sum to the metered energy of each side."""
    comparison = work.comparison
    if comparison.is_whole_step:
        rows = function_table(work, numbered.findings, comparable=comparable)
        return _with_rest(comparison, [*rows, *_outside_functions(comparison, numbered, comparable=comparable)])
    found = [_row(at, row, work, numbered, comparable=comparable) for at, row in enumerate(work.rows)]
    found.append(_unmatched(comparison, comparable=comparable))
    kinds: tuple[RowKind, ...] = ("idle", "host", "waits")
    for kind in kinds:
        parts = Pair(*(part_energy(comparison.costs[side].books.accounts, kind) for side in SIDES))
        found += _book_row(kind, parts, numbered, comparable=comparable)
    return _with_rest(comparison, found)


def _book_row(kind: RowKind, parts: Pair[Energy | None], numbered: _Numbered, *, comparable: bool) -> list[Row]:
    if parts.a is None and parts.b is None:
        return []
    finding = numbered.of_around
    verdict: RowVerdict = "finding" if finding else "noise" if comparable else "unknown"
    return [Row(_ROW_NAMES[kind], "", kind, 1, 0, 0, parts.a, parts.b, verdict, finding)]


def _outside_functions(comparison: Comparison, numbered: _Numbered, *, comparable: bool) -> list[Row]:
    """Return the row of the energy that no function used: that of an idle GPU."""
    accounts = (comparison.costs[side].books.accounts for side in SIDES)
    parts = Pair(*(part_energy(tuple(each for each in found if is_gpu(each.domain)), "idle") for found in accounts))
    return _book_row("idle", parts, numbered, comparable=comparable)


def _with_rest(comparison: Comparison, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return rows with the energy that none of them holds."""
    rest = [remainder(comparison.costs[side].total, [row.energies.of(side) for row in rows]) for side in SIDES]
    if all(part is None for part in rest):
        return tuple(rows)
    name = _NOT_SAMPLED if comparison.is_whole_step else "(unexplained)"
    return (*rows, Row(name, "", "unexplained", 1, 0, 0, rest[0], rest[1], "noise"))


def _row(at: int, row: RowComparison, work: Investigation, numbered: _Numbered, *, comparable: bool) -> Row:
    verdict: RowVerdict = work.settled.get(at, "noise")
    if at in numbered.of_row:
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
        numbered.of_row.get(at),
        group.regions,
        max((each.basis for each in row.members), key=BASES.index, default=None),
        max((each.drift for each in row.members if each.drift is not None), default=None),
    )


def _unmatched(comparison: Comparison, *, comparable: bool) -> Row:
    energies, counts = [], []
    for side in SIDES:
        run, costs = comparison.run(side), comparison.costs[side]
        left = _unmatched_ops(comparison, side)
        loose = [i for i, kernel in enumerate(run.kernels) if kernel.op is None]
        parts = [costs.of(left), costs.books.total(loose) if loose else None]
        energies.append(add_known(parts))
        counts.append(len(left))
    verdict: RowVerdict = "unknown" if not comparable else "changed"
    return Row("no counterpart", "", "unmatched", 1, counts[0], counts[1], energies[0], energies[1], verdict)
