"""A match on one screen: how much of both runs was recognised, what belongs together, and what has no counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from joulediff.frameworks.framework import short_name
from joulediff.model.energy import Energy
from joulediff.model.finding import RegionKind
from joulediff.model.units import format_share, format_si
from joulediff.report.columns import GAP, fit_texts, format_places, make_table, pick_unit, round_to_sum
from joulediff.report.sanitize import plain_text
from joulediff.report.terminal import print_parts
from joulediff.report.views.match_rows import MatchReport, MatchRow, MatchSide, joules_of

TOP = 20
_SIDES = ("A", "B")
_UNMATCHED = "no counterpart"
# So many names of what has no counterpart are shown.
_NAMES = 6


def print_match(report: MatchReport, console: Console, *, top: int = TOP) -> None:
    """Print a match."""
    print_parts(console, *_head(report), _table(report, console.width, top), *_rest(report))


def _head(report: MatchReport) -> Iterator[RenderableType]:
    sides = (report.a, report.b)
    width = max(cell_len(plain_text(side.run.label)) for side in sides)
    for letter, side in zip(_SIDES, sides, strict=True):
        energy = "" if side.energy is None else f", {format_si(side.energy.joules, 'J')} a step"
        text = Text(f"{letter} ", style="dim")
        text.append(plain_text(side.run.label).ljust(width + GAP), style="bold")
        yield text.append(f"{_count(len(side.run.ops), 'operator')}{energy}: {_shares(side)}", style="default")
    counts = Counter(region.kind for region in report.regions)
    kinds = [f"{counts[kind]:,} {word}" for kind, word in _KINDS.items() if counts[kind]]
    yield Text(f"{_count(len(report.regions), 'region')}: {', '.join(kinds) or 'nothing in common'}")
    yield Text()


_KINDS: dict[RegionKind, str] = {
    "equal": "compute the same",
    "movement": "move data",
    "repeated": "computed again",
    "constant": "constant",
    "unused": "unused",
}


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _shares(side: MatchSide) -> str:
    of_energy = side.share_of_energy
    found = f"{format_share(side.share_of_ops)} matched"
    return found if of_energy is None else f"{found}, {format_share(of_energy)} of joules"


def _table(report: MatchReport, width: int, top: int) -> Table:
    rows, more = report.rows[:top], report.rows[top:]
    known = report.a.energy is not None or report.b.energy is not None
    numbers = _energies(report, rows, more) if known else []
    counts = [_counts(row) for row in rows]
    heads = [f">{_unit(report)[1]} of {side}" for side in _SIDES] if known else []
    heads += [">×", ">ops A", ">ops B", "region", "where"]
    table = make_table(*heads)
    used = sum(max(map(len, column)) + GAP for column in zip(*numbers, strict=True)) if numbers else 0
    used += sum(max(len(h.strip(">")), *(len(c[i]) for c in counts), 3) + GAP for i, h in enumerate(heads[-5:-2]))
    names, places = fit_texts(
        [_label(row) for row in rows], [plain_text(row.group.where) for row in rows], width - used - GAP, keep_end=True
    )
    for at, row in enumerate(rows):
        style = "dim" if row.group.kind != "equal" else ""
        cells = [*(numbers[at] if known else ()), *counts[at], Text(names[at]), Text(places[at])]
        table.add_row(*cells, style=style)
    if more:
        regions = sum(len(row.group.regions) for row in more)
        cells = [*(numbers[len(rows)] if known else ()), f"{regions:,}", "", "", f"{len(more):,} more", ""]
        table.add_row(*cells, style="dim")
    if report.a.unmatched or report.b.unmatched:
        counted = [f"{len(side.unmatched):,}" if side.unmatched else "" for side in (report.a, report.b)]
        table.add_row(*(numbers[-2] if known else ()), "", *counted, _UNMATCHED, "", style="yellow")
    total = [f"{len(side.run.ops):,}" for side in (report.a, report.b)]
    table.add_row(
        *(numbers[-1] if known else ()), f"{len(report.regions):,}", *total, "all operators", "", style="bold"
    )
    return table


def _counts(row: MatchRow) -> list[str]:
    group = row.group
    return [f"{len(group.regions):,}", *(str(ops) if ops else "-" for ops in (group.ops_a, group.ops_b))]


def _label(row: MatchRow) -> str:
    name = plain_text(row.group.name)
    return name if row.group.kind == "equal" else f"{name} ({_KINDS[row.group.kind]})"


def _unit(report: MatchReport) -> tuple[float, str, int]:
    return pick_unit(max(joules_of(side.energy) for side in (report.a, report.b)), "J")


def _energies(report: MatchReport, rows: Sequence[MatchRow], more: Sequence[MatchRow]) -> list[tuple[str, str]]:
    """Return the two columns of joules: rows, what is folded, what has no counterpart, and all; each sums up."""
    factor, _, places = _unit(report)
    columns = []
    for side, pick in ((report.a, 0), (report.b, 1)):
        parts = [joules_of(_pick(row, pick)) for row in rows]
        folded = [sum(joules_of(_pick(row, pick)) for row in more)] if more else []
        rest = joules_of(side.unmatched_energy)
        units = round_to_sum([part * 10**places / factor for part in (*parts, *folded, rest)])
        total = sum(unit or 0 for unit in units)
        columns.append([format_places(unit, places) if unit else "-" for unit in (*units, total)])
    return list(zip(*columns, strict=True))


def _pick(row: MatchRow, side: int) -> Energy | None:
    return (row.energy_a, row.energy_b)[side]


def _rest(report: MatchReport) -> Iterator[RenderableType]:
    for letter, side in zip(_SIDES, (report.a, report.b), strict=True):
        names = report.unmatched_names(side)
        if names:
            shown = ", ".join(f"{plain_text(short_name(name))} ×{count}" for name, count in names[:_NAMES])
            rest = f", {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            yield Text(f"{_UNMATCHED} in {letter}: {shown}{rest}", style="yellow")
