"""Judgements on a terminal and as Markdown: a row for each case, why some are not found, and totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.cases.judge import Judgement, Outcome
from joulediff.cases.table import WRONG, CasesTable, cases_table
from joulediff.report.markdown import code, escape
from joulediff.report.terminal.table import cut_end, to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.columns import Column, Cut, TextTable

# In the order of the fields of a line.
_HEADS = ("case", "step", "region", "by J", "by s", "kind", "key", "proof", "outcome")
_NUMBERS = ("step", "region", "by J", "by s")
_LONG_HEADS = ("case", "step", "region", "rank by energy", "rank by time", "kind", "key", "confirmed", "outcome")
# The order in which a narrow terminal leaves columns out: the notes repeat what matters in them.
_SPARE = {head: at for at, head in enumerate(("proof", "kind", "by s", "by J", "region"))}
# An id is cut only if it takes more than this share of the width: users type it.
_CASE_SHARE = 0.4
_LEAST_KEY = 14
_STYLES: Mapping[Outcome, str] = {
    "found": "green",
    "clean": "green",
    "fixed upstream": "cyan",
    "partly": "yellow",
    "missed": "red",
    "failed": "red",
    "false alarm": "red",
}


def print_judgements(judgements: Sequence[Judgement], console: Console) -> None:
    """Print the judgements of cases."""
    table = cases_table(judgements)
    notes = bullets(table.notes, "-", "dim")
    print_parts(console, *_table(table, console.width), *notes, Text(table.totals, style="bold"))


def judgements_to_markdown(judgements: Sequence[Judgement]) -> str:
    """Return the judgements of cases as Markdown."""
    table = cases_table(judgements)
    parts = [list(_markdown_rows(table)), [f"- {escape(note)}" for note in table.notes], [escape(table.totals)]]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _table(table: CasesTable, width: int) -> Iterator[RenderableType]:
    if not table.lines:
        return
    rows = zip(*(astuple(line) for line in table.lines), strict=True)
    columns = [_column(head, cells, width) for head, cells in zip(_HEADS, rows, strict=True)]
    outcomes = [line.outcome for line in table.lines]
    yield to_table(TextTable(tuple(columns)), width, least_text=_LEAST_KEY, style_cell=partial(_style, outcomes))
    yield Text()


def _column(head: str, cells: Sequence[str], width: int) -> Column:
    if head == "case":
        return Column(head, [cut_end(cell, int(width * _CASE_SHARE)) for cell in cells])
    # The end of a key says the most.
    cut: Cut | None = "begin" if head == "key" else None
    return Column(head, cells, is_right=head in _NUMBERS, spare=_SPARE.get(head), cut=cut)


def _style(outcomes: Sequence[Outcome], column: Column, at: int) -> str:
    cell = column.cells[at]
    if column.head == "outcome":
        return _STYLES.get(outcomes[at], "")
    if cell.endswith(WRONG):
        return "yellow"
    return "green" if cell == "✓" else ""


def _markdown_rows(table: CasesTable) -> Iterator[str]:
    if not table.lines:
        return
    yield _row(_LONG_HEADS)
    yield _row(["--:" if head in _NUMBERS else "---" for head in _HEADS])
    for line in table.lines:
        case, *cells = astuple(line)
        yield _row([code(case), *map(escape, cells)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
