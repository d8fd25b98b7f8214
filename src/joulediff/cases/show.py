"""Judgements on a terminal and as Markdown: a row a case, why some are not found, and one line of totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.cases.judge import Judgement, Outcome
from joulediff.cases.table import WRONG, CasesTable, cases_table
from joulediff.report.columns import GAP, cut_begin, cut_end, make_table
from joulediff.report.markdown import code, escape
from joulediff.report.terminal import bullet, print_parts

# In the order of the fields of a line; `>` sets to the right.
_HEADS = ("case", ">step", ">region", ">by J", ">by s", "kind", "key", "proof", "outcome")
_LONG_HEADS = ("case", "step", "region", "rank by energy", "rank by time", "kind", "key", "confirmed", "outcome")
# What a narrow terminal does without, one after the other: the notes tell what of them matters.
_SPARE = ("proof", "kind", ">by s", ">by J", ">region")
# Ids are what one types: they stay whole unless they would take more than this of the width.
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
    """Print how cases went."""
    table = cases_table(judgements)
    notes = [bullet("-", note, "dim") for note in table.notes]
    print_parts(console, *_table(table, console.width), *notes, Text(table.totals, style="bold"))


def judgements_to_markdown(judgements: Sequence[Judgement]) -> str:
    """Return how cases went as Markdown."""
    table = cases_table(judgements)
    parts = [list(_markdown_rows(table)), [f"- {escape(note)}" for note in table.notes], [escape(table.totals)]]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _table(table: CasesTable, width: int) -> Iterator[RenderableType]:
    if not table.lines:
        return
    rows = list(zip(*(astuple(line) for line in table.lines), strict=True))
    columns = {head: [str(cell) for cell in cells] for head, cells in zip(_HEADS, rows, strict=True)}
    columns["case"] = [cut_end(cell, int(width * _CASE_SHARE)) for cell in columns["case"]]
    for spare in _SPARE:
        if _key_room(columns, width) < min(_LEAST_KEY, _widest(columns, "key")):
            del columns[spare]
    room = max(_key_room(columns, width), len("key"))
    columns["key"] = [cut_begin(cell, room) for cell in columns["key"]]  # its end tells the most
    made = make_table(*columns)
    for at, line in enumerate(table.lines):
        cells = [Text(cells[at], style=_style(head, cells[at], line.outcome)) for head, cells in columns.items()]
        made.add_row(*cells)
    yield made
    yield Text()


def _key_room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    return width - sum(_widest(columns, head) + GAP for head in columns if head != "key")


def _widest(columns: Mapping[str, Sequence[str]], head: str) -> int:
    return max(map(cell_len, [head.removeprefix(">"), *columns[head]]))


def _style(head: str, cell: str, outcome: Outcome) -> str:
    if head == "outcome":
        return _STYLES.get(outcome, "")
    if cell.endswith(WRONG):
        return "yellow"
    return "green" if cell == "✓" else ""


def _markdown_rows(table: CasesTable) -> Iterator[str]:
    if not table.lines:
        return
    yield _row(_LONG_HEADS)
    yield _row(["--:" if head.startswith(">") else "---" for head in _HEADS])
    for line in table.lines:
        case, *cells = astuple(line)
        yield _row([code(case), *map(escape, cells)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
