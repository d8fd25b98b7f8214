"""Two runs of scripts as tables: APIs, lines, and the ledgers of both.

Each column of joules sums to the program as printed; Δ is the difference of the printed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from joulediff.model.apis.api_diff import ApiDiff, ApiDiffSide, Change, LineChange, Verdict
from joulediff.model.apis.api_run import add_accounts
from joulediff.model.apis.parts import BETWEEN, UNEXPLAINED, PartName
from joulediff.model.energy import Energy, add_common, joules_of, scale
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.report.views.apis.costs import (
    NONE,
    PROGRAM,
    Costs,
    choose_scale,
    cost_cells,
    cost_units,
    emphases,
    ledger_costs,
    part_names,
    repeat_emphasis,
)
from joulediff.report.views.apis.lines import between_text, place_text
from joulediff.report.views.columns import Column, Cut, TextTable
from joulediff.report.views.run.ledger import Scale
from joulediff.report.views.short_texts import count_text, energy_text, format_places, ratio_text, short_files

_SPARE = {"a call": 0, "each": 0, "from": 1, "calls": 2, "times": 2, "ratio": 3}
# From this share on, a part of a difference is all of it.
_ALMOST_ALL = 0.8


@dataclass(frozen=True, slots=True)
class _Row:
    """The same code in both runs, or several folded into one row."""

    mark: str
    """`~` for a difference within noise."""
    energy: Pair[Energy | None]
    calls: Pair[int]
    seconds: Pair[float]
    is_in: Pair[bool]
    """Whether each run has this code."""
    ratio: str
    reason: str
    texts: tuple[str, ...]


def api_diff_table(diff: ApiDiff, *, top: int, every: bool = False) -> TextTable | None:
    """Return the APIs whose energy differs, the others folded, and the parts of the programs; None without an API."""
    rows = [_row(each.change, (each.api,)) for each in diff.apis]
    shown = _fold([each.change.verdict for each in diff.apis], rows, "API", top=top, every=every)
    return _table(diff, shown, ("API",), is_by_line=False) if rows else None


def line_diff_table(diff: ApiDiff, *, top: int, every: bool = False) -> TextTable | None:
    """Return the lines whose energy differs, the others folded, and the parts of the programs; None without a line."""
    names = short_files(place.file for line in diff.lines for place in (line.a, line.b) if place is not None)
    rows = [_row(each.change, (_places(each, names), _code(each)), is_line=True) for each in diff.lines]
    shown = _fold([each.change.verdict for each in diff.lines], rows, "line", top=top, every=every)
    return _table(diff, shown, ("line", "code"), is_by_line=True) if rows else None


def ledger_diff_table(diff: ApiDiff) -> TextTable | None:
    """Return the parts of both programs above idle, and idle; None if neither was measured."""
    accounts = Pair(*(add_accounts(side.ledger) for side in (diff.a, diff.b)))
    if accounts.a is None or accounts.b is None:
        return None
    costs = Pair(ledger_costs(accounts.a), ledger_costs(accounts.b))
    unit = choose_scale(costs.a.whole, costs.b.whole)
    names = part_names([costs.a, costs.b], unit)
    cells = Pair(*(cost_cells(each, unit, names) for each in costs))
    deltas = _deltas(costs, unit, names)
    columns = (
        Column(unit.unit, ["calls", *names, PROGRAM]),
        *([Column("Δ", deltas, is_right=True)] if diff.comparable else []),
        Column("A", cells.a, is_right=True),
        Column("B", cells.b, is_right=True),
    )
    return TextTable(columns, emphases(1 + len(names), 0))


def why_text(change: Change, *, is_line: bool = False) -> str:
    """Return whether a difference comes from the number of calls or from the energy of each; a line has times."""
    difference_j = joules_of(change.difference)
    if change.verdict != "differs" or change.from_calls_j is None or not difference_j:
        return ""
    from_calls = change.from_calls_j / difference_j
    if abs(1 - from_calls) <= 1 - _ALMOST_ALL:
        return "number of times" if is_line else "number of calls"
    if abs(from_calls) <= 1 - _ALMOST_ALL:
        return "energy each time" if is_line else "energy of a call"
    return f"{_percent(from_calls)} number, {_percent(1 - from_calls)} energy of each"


def _table(diff: ApiDiff, rows: Sequence[_Row], heads: Sequence[str], *, is_by_line: bool) -> TextTable:
    without = BETWEEN if is_by_line else None
    costs = Pair(_costs(diff, "a", rows, without), _costs(diff, "b", rows, without))
    unit = choose_scale(costs.a.whole, costs.b.whole)
    names = part_names([costs.a, costs.b], unit)
    marks = [row.mark for row in rows]
    columns = (
        *([Column("", [*marks, *[""] * (len(names) + 1)])] if any(marks) else []),
        *_numbers(diff, rows, costs, unit, names, is_by_line=is_by_line),
        *_texts(rows, heads, names),
    )
    emphasis = [repeat_emphasis("minor" if row.mark else "", 1)[0] for row in rows]
    return TextTable(columns, (*emphasis, *emphases(0, len(names))))


def _numbers(
    diff: ApiDiff, rows: Sequence[_Row], costs: Pair[Costs], unit: Scale, names: Sequence[str], *, is_by_line: bool
) -> Iterator[Column]:
    below = [""] * len(names)
    cells = Pair(*(cost_cells(each, unit, names) for each in costs))
    for at, row in enumerate(rows):
        for side in SIDES:
            if not row.is_in.of(side):
                cells.of(side)[at] = NONE
    if diff.comparable:
        yield _number(f"Δ {unit.unit}", _deltas(costs, unit, names, [row.is_in for row in rows]))
    yield _number("A" if diff.comparable else f"A {unit.unit}", cells.a)
    yield _number("B", cells.b)
    if diff.ratio is not None:
        yield _number("ratio", [*(row.ratio for row in rows), *below, ratio_text(diff.ratio.value)])
    # The code between calls is in the rows of lines, so they do not sum to the number of calls.
    whole = "" if is_by_line else _joined(f"{diff.a.calls:,}", f"{diff.b.calls:,}")
    yield _number("times" if is_by_line else "calls", [*(_both(row, _calls) for row in rows), *below, whole])
    yield _number("each" if is_by_line else "a call", [*(_both(row, _per_call) for row in rows), *below, ""])


def _texts(rows: Sequence[_Row], heads: Sequence[str], names: Sequence[str]) -> Iterator[Column]:
    """Yield the columns that name a row: the first names the parts and the program too."""
    for at, head in enumerate(heads):
        below = [*names, PROGRAM] if at == 0 else [""] * (len(names) + 1)
        cut: Cut | None = None if at < len(heads) - 1 else "begin" if head == "API" else "end"
        yield Column(head, [*(row.texts[at] for row in rows), *below], cut=cut)
    reasons = [*(row.reason for row in rows), *[""] * (len(names) + 1)]
    if any(reasons):
        yield Column("from", reasons, spare=_SPARE["from"], is_minor=True)


def _costs(diff: ApiDiff, side: SideName, rows: Sequence[_Row], without: PartName | None) -> Costs:
    half: ApiDiffSide = getattr(diff, side)
    found = [part for part in diff.parts if part.name not in (without, UNEXPLAINED)]
    parts = {part.name: energy for part in found if (energy := getattr(part, f"energy_{side}")) is not None}
    return Costs([row.energy.of(side) for row in rows], parts, half.energy)


def _row(change: Change, texts: tuple[str, ...], *, is_line: bool = False) -> _Row:
    only = {"only in A": "only A", "only in B": "only B"}.get(change.verdict)
    ratio = "" if change.ratio is None else ratio_text(change.ratio.value)
    return _Row(
        "~" if change.verdict == "noise" else "",
        Pair(change.energy_a, change.energy_b),
        Pair(change.calls_a, change.calls_b),
        Pair(change.seconds_a, change.seconds_b),
        Pair(change.verdict != "only in B", change.verdict != "only in A"),
        only or f"{'~' if change.verdict == 'noise' else ''}{ratio}",
        why_text(change, is_line=is_line),
        texts,
    )


def _fold(verdicts: Sequence[Verdict], rows: Sequence[_Row], what: str, *, top: int, every: bool) -> list[_Row]:
    """Return at most `top` rows beside those within noise, which are one row; `every` folds none."""
    if every:
        return list(rows)
    pairs = list(zip(verdicts, rows, strict=True))
    loud = [row for verdict, row in pairs if verdict != "noise"]
    quiet = [row for verdict, row in pairs if verdict == "noise"]
    shown = loud if len(loud) <= top + 1 else loud[: max(top, 1)]
    rest = loud[len(shown) :]
    found = [*shown, *([_join(rest, f"{count_text(len(rest), f'more {what}')}", "")] if rest else [])]
    within = f"{count_text(len(quiet), what)} within noise"
    return [*found, *([_join(quiet, within, "~")] if quiet else [])]


def _join(rows: Sequence[_Row], text: str, mark: str) -> _Row:
    def total(energies: Iterable[Energy | None]) -> Energy | None:
        return add_common(energy for energy in energies if energy is not None)

    return _Row(
        mark,
        Pair(total(row.energy.a for row in rows), total(row.energy.b for row in rows)),
        Pair(sum(row.calls.a for row in rows), sum(row.calls.b for row in rows)),
        Pair(sum(row.seconds.a for row in rows), sum(row.seconds.b for row in rows)),
        Pair(any(row.is_in.a for row in rows), any(row.is_in.b for row in rows)),
        "",
        "",
        (text, *("" for _ in rows[0].texts[1:])),
    )


def _both(row: _Row, text_of: Callable[[Energy | None, int], str]) -> str:
    """Return the texts of both sides; one if they are equal, or if only one side has this code."""
    a, b = (text_of(energy, calls) for energy, calls in zip(row.energy, row.calls, strict=True))
    if not (row.is_in.a and row.is_in.b):
        return a if row.is_in.a else b
    return _joined(a, b)


def _joined(a: str, b: str) -> str:
    return a if a == b else f"{a} ↔ {b}"


def _calls(_: Energy | None, calls: int) -> str:
    return f"{calls:,}"


def _per_call(energy: Energy | None, calls: int) -> str:
    return energy_text(scale(energy, 1 / calls)) if calls else NONE


def _deltas(costs: Pair[Costs], unit: Scale, names: Sequence[str], is_in: Sequence[Pair[bool]] = ()) -> list[str]:
    """Return the differences of the printed numbers; code or a part that a side does not have costs it nothing."""
    units = Pair(*(cost_units(each, unit, names) for each in costs))
    for side in SIDES:
        missing = [at for at, each in enumerate(is_in) if not each.of(side)]
        parts = enumerate(names, start=len(costs.of(side).items))
        missing += [at for at, name in parts if name != UNEXPLAINED and name not in costs.of(side).parts]
        for at in missing:
            units.of(side)[at] = 0
    deltas = [None if a is None or b is None else a - b for a, b in zip(units.a, units.b, strict=True)]
    return [f"{'+' if each is not None and each > 0 else ''}{format_places(each, unit.places)}" for each in deltas]


def _percent(share: float) -> str:
    return f"{format_places(round(100 * share), 0)}%"


def _places(line: LineChange, names: dict[str, str]) -> str:
    a, b = (None if place is None else place_text(names[place.file], place.line) for place in (line.a, line.b))
    if a is None or b is None or a == b:
        return a or b or ""
    assert line.a is not None
    assert line.b is not None
    if names[line.a.file] == names[line.b.file] and line.b.line is not None:
        return f"{a} ↔ {line.b.line}"
    return f"{a} ↔ {b}"


def _code(line: LineChange) -> str:
    place = line.a or line.b
    if not line.between or place is None:
        return line.text
    return between_text(place.line, place.before_line)


def _number(head: str, cells: Sequence[str]) -> Column:
    return Column(head, cells, is_right=True, spare=_SPARE.get(head))
