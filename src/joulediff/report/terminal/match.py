"""A match on one screen: the matched share of both runs, a table of regions, and operators without a counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.frameworks.framework import short_name
from joulediff.model.energy import Energy, joules_of
from joulediff.model.finding import RegionKind
from joulediff.model.units import format_share, format_si
from joulediff.report.limits import TOP_REGIONS
from joulediff.report.sanitize import plain_text
from joulediff.report.terminal.table import GAP, to_table
from joulediff.report.terminal.text import print_parts
from joulediff.report.views.amounts import count_text, format_places, pick_unit, round_to_sum
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.match_rows import MatchReport, MatchRow, MatchSide

_SIDES = ("A", "B")
_UNMATCHED = "no counterpart"
_COUNTS = ("×", "ops A", "ops B")
# At most this many names of operators without a counterpart are shown.
_NAMES = 6
_KINDS: dict[RegionKind, str] = {
    "equal": "compute the same",
    "movement": "move data",
    "repeated": "computed again",
    "constant": "constant",
    "unused": "unused",
}


def print_match(report: MatchReport, console: Console, *, top: int = TOP_REGIONS) -> None:
    """Print a match."""
    print_parts(console, *_head(report), to_table(_table(report, top), console.width), *_rest(report))


def _head(report: MatchReport) -> Iterator[RenderableType]:
    sides = (report.a, report.b)
    width = max(cell_len(plain_text(side.run.label)) for side in sides)
    for letter, side in zip(_SIDES, sides, strict=True):
        energy = "" if side.energy is None else f", {format_si(side.energy.joules, 'J')} a step"
        text = Text(f"{letter} ", style="dim")
        text.append(plain_text(side.run.label).ljust(width + GAP), style="bold")
        yield text.append(f"{count_text(len(side.run.ops), 'operator')}{energy}: {_shares(side)}", style="default")
    counts = Counter(region.kind for region in report.regions)
    kinds = [f"{counts[kind]:,} {word}" for kind, word in _KINDS.items() if counts[kind]]
    yield Text(f"{count_text(len(report.regions), 'region')}: {', '.join(kinds) or 'nothing in common'}")
    yield Text()


def _shares(side: MatchSide) -> str:
    of_energy = side.share_of_energy
    found = f"{format_share(side.share_of_ops)} matched"
    return found if of_energy is None else f"{found}, {format_share(of_energy)} of joules"


def _table(report: MatchReport, top: int) -> TextTable:
    rows, more = report.rows[:top], report.rows[top:]
    sides = (report.a, report.b)
    lines = [[*_counts(row), _label(row), plain_text(row.group.where)] for row in rows]
    emphasis: list[Emphasis] = ["" if row.group.kind == "equal" else "minor" for row in rows]
    if more:
        regions = sum(len(row.group.regions) for row in more)
        lines.append([f"{regions:,}", "", "", f"{len(more):,} more", ""])
        emphasis.append("minor")
    has_unmatched = bool(report.a.unmatched or report.b.unmatched)
    if has_unmatched:
        counted = [f"{len(side.unmatched):,}" if side.unmatched else "" for side in sides]
        lines.append(["", *counted, _UNMATCHED, ""])
        emphasis.append("warning")
    lines.append([f"{len(report.regions):,}", *(f"{len(side.run.ops):,}" for side in sides), "all operators", ""])
    emphasis.append("total")
    energies = _energy_columns(report, rows, more, has_unmatched=has_unmatched)
    *counts, names, places = zip(*lines, strict=True)
    numbers = (Column(head, cells, is_right=True) for head, cells in zip(_COUNTS, counts, strict=True))
    texts = (Column("region", names, cut="end"), Column("where", places, cut="begin"))
    return TextTable((*energies, *numbers, *texts), tuple(emphasis))


def _counts(row: MatchRow) -> list[str]:
    group = row.group
    return [f"{len(group.regions):,}", *(str(ops) if ops else "-" for ops in (group.ops_a, group.ops_b))]


def _label(row: MatchRow) -> str:
    name = plain_text(row.group.name)
    return name if row.group.kind == "equal" else f"{name} ({_KINDS[row.group.kind]})"


def _energy_columns(
    report: MatchReport, rows: Sequence[MatchRow], more: Sequence[MatchRow], *, has_unmatched: bool
) -> list[Column]:
    """Return the joules of both sides: rows, folded rows, operators without a counterpart, and all; each sums up."""
    if report.a.energy is None and report.b.energy is None:
        return []
    factor, unit, places = pick_unit(max(joules_of(side.energy) for side in (report.a, report.b)), "J")
    columns = []
    for at, (letter, side) in enumerate(zip(_SIDES, (report.a, report.b), strict=True)):
        parts = [joules_of(_pick(row, at)) for row in rows]
        folded = [sum(joules_of(_pick(row, at)) for row in more)] if more else []
        rest = [joules_of(side.unmatched_energy)] if has_unmatched else []
        units = round_to_sum([part * 10**places / factor for part in (*parts, *folded, *rest)])
        total = sum(each or 0 for each in units)
        cells = [format_places(each, places) if each else "-" for each in (*units, total)]
        columns.append(Column(f"{unit} of {letter}", cells, is_right=True))
    return columns


def _pick(row: MatchRow, side: int) -> Energy | None:
    return (row.energy_a, row.energy_b)[side]


def _rest(report: MatchReport) -> Iterator[RenderableType]:
    for letter, side in zip(_SIDES, (report.a, report.b), strict=True):
        names = report.unmatched_names(side)
        if names:
            shown = ", ".join(f"{plain_text(short_name(name))} ×{count}" for name, count in names[:_NAMES])
            rest = f", {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            yield Text(f"{_UNMATCHED} in {letter}: {shown}{rest}", style="yellow")
