"""The rows of a diff as lines of a table: findings, trade-offs, other changes, and the rest folded.

Columns of joules are rounded so that they sum to their total as printed; Δ is the difference of the printed numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from joulediff.model.diff import Diff, NotExplained, Row
from joulediff.model.finding import Finding
from joulediff.report.views.diff_sentences import REST_OF_CALLS, row_word
from joulediff.report.views.finding_sentences import cause_text, file_names, mark_text, pays_text, region_text
from joulediff.report.views.other_differences import NOT_EXPLAINED, not_explained_place, places_of
from joulediff.report.views.short_texts import (
    count_text,
    format_places,
    pick_unit,
    ratio_text,
    round_to_sum,
    shown_j,
    with_count,
)

Part = Literal["finding", "tradeoff", "rest", "noise", "total"]
# Rows of the ledger, not of matched regions, in the order of the table.
_BOOKS = ("idle", "host", "waits", "unmatched", "unexplained")
_WITHOUT_OPS = ("idle", "host", "waits", "unexplained")
_NOTHING = "-"
# At most this many rows of each verdict are shown besides findings.
_MOST_ROWS = 5


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of the table. `numbers` are the cells under `DiffTable.heads`."""

    part: Part
    number: str
    sign: str
    numbers: tuple[str, ...]
    region: str
    cause: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class DiffTable:
    """All lines, with the heads of the columns of numbers and of the name of a row."""

    heads: tuple[str, ...]
    lines: tuple[DiffLine, ...]
    row_head: str = "region"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line before its numbers are formatted. Joules are None if the side has no work, NaN if unknown."""

    part: Part
    sign: str
    region: str
    a_j: float | None
    b_j: float | None
    number: str = ""
    cause: str = ""
    mark: str = ""
    ops: tuple[int, int] | None = None
    delta_j: float | None = None
    """The difference, for a line without energies of its own."""
    is_counted: bool = True
    """False for a finding whose joules are in other rows already."""


def diff_table(diff: Diff, *, top: int, every: bool = False) -> DiffTable:
    """Return the lines of a diff: at most `top` findings and a few other rows; `every` folds nothing."""
    entries = list(_entries(diff, top=max(top, 1), every=every))
    if not any(_is_known(j) for entry in entries if entry.is_counted for j in (entry.a_j, entry.b_j)):
        lines = [_line(entry, _op_counts(entry)) for entry in entries]
        return DiffTable(("ops A", "ops B"), tuple(lines), row_word(diff))
    total_a_j, total_b_j = (_total_j([getattr(e, side) for e in entries if e.is_counted]) for side in ("a_j", "b_j"))
    factor, unit, places = pick_unit(max(abs(j) for j in (total_a_j, total_b_j) if math.isfinite(j)), "J")
    per_joule = 10**places / factor
    a = _round(entries, [e.a_j for e in entries], per_joule, shown_j(diff.a.step.energy))
    b = _round(entries, [e.b_j for e in entries], per_joule, shown_j(diff.b.step.energy))
    total = _Entry("total", "", "all of a step", total_a_j, total_b_j)
    sums = (_total_units(entries, a), _total_units(entries, b))
    lines = [
        _line(entry, _cells(entry, units_a, units_b, places, per_joule=per_joule))
        for entry, units_a, units_b in zip((*entries, total), (*a, sums[0]), (*b, sums[1]), strict=True)
    ]
    return DiffTable((f"Δ {unit}", f"A {unit}", f"B {unit}", "ratio"), tuple(lines), row_word(diff))


def _entries(diff: Diff, *, top: int, every: bool) -> Iterator[_Entry]:
    rows = _rows_by_finding(diff)
    everything = max(len(diff.findings), len(diff.rows))
    yield from _finding_entries(diff, rows, everything if every else top)
    if diff.not_explained is not None:
        yield _open_entry(diff, diff.not_explained)
    most = everything if every else top if not diff.comparable else _MOST_ROWS
    rest = [row for row in diff.rows if _finding_of(row, rows) is None]
    by_verdict: dict[str, list[Row]] = {}
    for row in rest:
        if row.kind not in _BOOKS:
            by_verdict.setdefault(_verdict(row, diff), []).append(row)
    word = row_word(diff)
    yield from _row_entries(by_verdict.get("changed", []), most, f"{word}s changed", None)
    noise = by_verdict.get("noise", [])
    yield from ([_row_entry(row, "~") for row in _sorted(noise)] if every else _folded_noise(noise, word))
    for verdict, words, sign in (
        ("only_a", f"{word}s only in A", "x"),
        ("only_b", f"{word}s only in B", "x"),
        ("unknown", f"{word}s", ""),
    ):
        yield from _row_entries(by_verdict.get(verdict, []), most, words, sign)
    for kind in _BOOKS:
        yield from (_book_entry(row, diff) for row in rest if row.kind == kind and (every or not _is_nothing(row)))


def _is_nothing(row: Row) -> bool:
    """Return whether a row of the ledger is known to be zero on both sides."""
    return all(energy is not None and energy.is_zero for energy in row.energies)


def _rows_by_finding(diff: Diff) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {finding.id: [] for finding in diff.findings}
    for row in diff.rows:
        if row.finding in found:
            found[row.finding].append(row)
    return found


def _finding_of(row: Row, rows: Mapping[str, object]) -> str | None:
    return row.finding if row.finding in rows else None


def _verdict(row: Row, diff: Diff) -> str:
    """Return the verdict on a row; unknown if the energies cannot be compared."""
    if not diff.comparable:
        return "unknown"
    return "changed" if row.verdict == "finding" else row.verdict


def _finding_entries(diff: Diff, rows: Mapping[str, list[Row]], most: int) -> Iterator[_Entry]:
    files, numbered = file_names(diff.findings, places_of(diff)), list(enumerate(diff.findings, start=1))
    for verdict, part, words in (("waste", "finding", "findings"), ("tradeoff", "tradeoff", "trade-offs")):
        found = [(number, finding) for number, finding in numbered if finding.verdict == verdict]
        shown = [each for each in found if each[0] <= most]
        for number, finding in shown:
            cause = pays_text(finding, diff.thresholds) if part == "tradeoff" else cause_text(finding, files)
            yield _finding_entry(finding, rows[finding.id], part, number, cause)  # type: ignore[arg-type]
        more = [row for number, finding in found if number > most for row in rows[finding.id]]
        if len(shown) < len(found):
            name = f"{len(found) - len(shown):,} more {words if len(found) - len(shown) > 1 else words[:-1]}"
            yield _Entry(part, "", name, _side_j(more, "a"), _side_j(more, "b"))  # type: ignore[arg-type]


def _finding_entry(finding: Finding, rows: Sequence[Row], part: Part, number: int, cause: str) -> _Entry:
    a_j, b_j = (
        (_side_j(rows, "a"), _side_j(rows, "b")) if rows else (shown_j(energy) for energy in finding.cost.energies)
    )
    return _Entry(
        part,
        "+" if finding.expensive == "a" else "-",
        region_text(finding),
        a_j,
        b_j,
        number=str(number),
        cause=cause,
        mark=mark_text(finding),
        ops=(len(finding.work.ops_a), len(finding.work.ops_b)),
        is_counted=bool(rows),
    )


def _open_entry(diff: Diff, found: NotExplained) -> _Entry:
    """Return the line of the difference that is not explained: its joules are in other rows."""
    joules = found.energy.joules
    return _Entry(
        "rest",
        "+" if joules >= 0 else "-",
        NOT_EXPLAINED,
        None,
        None,
        cause=not_explained_place(found, file_names(diff.findings, places_of(diff))),
        delta_j=joules,
        is_counted=False,
    )


def _row_entries(rows: Sequence[Row], most: int, words: str, sign: str | None) -> Iterator[_Entry]:
    """Yield the largest rows and the sum of the others; without `sign`, each row has its own."""
    ranked = _sorted(rows)
    shown, more = (ranked, []) if len(ranked) <= most + 1 else (ranked[:most], ranked[most:])
    yield from (_row_entry(row, _sign(row) if sign is None else sign) for row in shown)
    if more:
        name = f"{_regions(more):,} more {words}"
        yield _Entry("rest", sign or "", name, _side_j(more, "a"), _side_j(more, "b"))


def _row_entry(row: Row, sign: str) -> _Entry:
    cause = f"in {row.where}" if row.where else ""
    if row.kind == "function":
        cause = row.where
    elif sign == "x":
        other, ops = ("B", row.ops_b) if row.verdict == "only_a" else ("A", row.ops_a)
        cause = f"no kernel in {other}" if ops else f"no counterpart in {other}"
    part: Part = "noise" if sign == "~" else "rest"
    sides = _side_j([row], "a"), _side_j([row], "b")
    name = with_count(row.name, row.count)
    if row.basis == "call":
        name = f"{name} ({REST_OF_CALLS})"
    return _Entry(part, sign, name, *sides, cause=cause, ops=(row.ops_a, row.ops_b))


def _book_entry(row: Row, diff: Diff) -> _Entry:
    verdict = _verdict(row, diff)
    sign = {"noise": "~", "only_a": "x", "only_b": "x", "unknown": ""}.get(verdict) if verdict != "changed" else None
    shown = _sign(row) if sign is None else sign
    sides = _side_j([row], "a"), _side_j([row], "b")
    name = with_count(row.name or f"({row.kind})", row.count)
    return _Entry("noise" if shown == "~" else "rest", shown, name, *sides, ops=(row.ops_a, row.ops_b))


def _folded_noise(rows: Sequence[Row], word: str) -> list[_Entry]:
    if not rows:
        return []
    name = f"{count_text(_regions(rows), word)} within noise"
    return [_Entry("noise", "~", name, _side_j(rows, "a"), _side_j(rows, "b"))]


def _regions(rows: Sequence[Row]) -> int:
    return sum(max(row.count, 1) for row in rows)


def _sorted(rows: Sequence[Row]) -> list[Row]:
    def size(row: Row) -> float:
        a_j, b_j = (j if _is_known(j) else 0.0 for j in (_side_j([row], "a"), _side_j([row], "b")))
        assert a_j is not None and b_j is not None
        return abs(a_j - b_j) if row.verdict == "changed" else max(a_j, b_j)

    return sorted(rows, key=size, reverse=True)


def _sign(row: Row) -> str:
    a_j, b_j = _side_j([row], "a"), _side_j([row], "b")
    if row.verdict == "unknown" or not all(j is None or _is_known(j) for j in (a_j, b_j)):
        return ""
    return "+" if (a_j or 0.0) >= (b_j or 0.0) else "-"


def _side_j(rows: Sequence[Row], side: Literal["a", "b"]) -> float | None:
    """Return the joules of one side: None if it has no work there, NaN if they are unknown."""
    known = _sum_known([shown_j(row.energies.of(side)) for row in rows])
    if known is not None:
        return known
    there = any(row.ops.of(side) > 0 or row.kind in _WITHOUT_OPS for row in rows)
    return math.nan if there else None


def _is_known(joules: float | None) -> bool:
    return joules is not None and math.isfinite(joules)


def _sum_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) if known else None


def _total_j(values: Sequence[float | None]) -> float:
    known = _sum_known(values)
    return math.nan if known is None else known


def _total_units(entries: Sequence[_Entry], units: Sequence[int | None]) -> int | None:
    known = [each for each, entry in zip(units, entries, strict=True) if each is not None and entry.is_counted]
    return sum(known) if known else None


def _round(
    entries: Sequence[_Entry], joules: Sequence[float | None], per_joule: float, metered_j: float | None
) -> list[int | None]:
    """Return units of the last place that sum to the metered energy, if the rows do."""
    scaled = [None if j is None or not e.is_counted else j * per_joule for j, e in zip(joules, entries, strict=True)]
    total = _sum_known(scaled)
    metered = math.nan if metered_j is None else metered_j * per_joule
    is_whole = total is not None and abs(total - metered) < 1.0
    units = round_to_sum(scaled, total=round(metered) if is_whole else None)
    own = (_to_units(j, per_joule) for j in joules)
    return [unit if e.is_counted else each for unit, each, e in zip(units, own, entries, strict=True)]


def _to_units(joules: float | None, per_joule: float) -> int | None:
    """Return units of the last place; None for an energy that is unknown, or too large to be one."""
    units = math.nan if joules is None else joules * per_joule
    return round(units) if math.isfinite(units) else None


def _cells(entry: _Entry, a: int | None, b: int | None, places: int, *, per_joule: float) -> tuple[str, ...]:
    if entry.delta_j is not None:
        return (f"({format_places(_to_units(entry.delta_j, per_joule), places)})", "", "", "")
    sides = ((entry.a_j, a), (entry.b_j, b))
    texts = [_NOTHING if joules is None else format_places(units, places) for joules, units in sides]
    is_known = all(joules is None or units is not None for joules, units in sides)
    delta = format_places((a or 0) - (b or 0), places) if is_known else "?"
    cells = (delta, *texts)
    shown = cells if entry.is_counted else tuple(f"({cell})" for cell in cells)
    return (*shown, _ratio(entry, per_joule))


def _ratio(entry: _Entry, per_joule: float) -> str:
    """Return the expensive side over the cheap one, if both are larger than the last place shown."""
    a_j, b_j = entry.a_j, entry.b_j
    if a_j is None or b_j is None:
        return "" if a_j is b_j else "only in A" if b_j is None else "only in B"
    if not (_is_known(a_j) and _is_known(b_j) and min(a_j, b_j) * per_joule >= 1.0):
        return ""
    ratio = max(a_j, b_j) / min(a_j, b_j)
    if entry.part == "noise":
        return f"~{format_places(round(100 * ratio), 2)}x"
    return ratio_text(ratio)


def _op_counts(entry: _Entry) -> tuple[str, ...]:
    return ("", "") if entry.ops is None else tuple(f"{ops:,}" if ops else _NOTHING for ops in entry.ops)


def _line(entry: _Entry, numbers: tuple[str, ...]) -> DiffLine:
    return DiffLine(entry.part, entry.number, entry.sign, numbers, entry.region, entry.cause, entry.mark)
