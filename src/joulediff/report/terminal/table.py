"""Tables that fit the terminal: spare columns are left out first, then texts share the room that is left.

Every table of every command is made here, so that all of them behave alike on a narrow terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from joulediff.report.views.columns import Column, Emphasis, TextTable

GAP = 2
# Columns of numbers are left out before texts have less room than this.
LEAST_TEXT = 30
# Two columns of text have at least this room, on any terminal.
_LEAST_PAIR = 14
_ENDS_WITH_LINE = re.compile(r":\d+\)?$")
_STYLES: Mapping[Emphasis, str] = {"": "", "total": "bold", "minor": "dim", "warning": "yellow"}
StyleCell = Callable[[Column, int], str]


def to_table(
    table: TextTable, width: int, *, least_text: int = LEAST_TEXT, style_cell: StyleCell | None = None
) -> Table:
    """Return a table in at most `width` cells."""
    columns = fit_columns(table.columns, width, least_text=least_text)
    return fill_table(columns, styles=[_STYLES[each] for each in table.emphasis], style_cell=style_cell)


def fit_columns(columns: Sequence[Column], width: int, *, least_text: int = LEAST_TEXT) -> list[Column]:
    """Return the columns that fit into `width` cells, with their texts cut."""
    left = list(columns)
    if text_room(left, width, wrap=False) < 0:
        left = [column if column.short_head is None else replace(column, head=column.short_head) for column in left]
    for spare in sorted({each.spare for each in left if each.spare is not None}):
        need = sum(_width(each) for each in left if each.cut is not None)
        if text_room(left, width) >= min(need, least_text):
            break
        left = [each for each in left if each.spare != spare]
    return _cut_texts(left, text_room(left, width))


def text_room(columns: Sequence[Column], width: int, *, wrap: bool = True) -> int:
    """Return the cells that the other columns leave to those whose texts may be cut."""
    fixed = sum(_width(column, wrap=wrap) for column in columns if column.cut is None)
    return width - fixed - GAP * (len(columns) - 1)


def fill_table(
    columns: Sequence[Column],
    *,
    rows: Iterable[int] | None = None,
    styles: Sequence[str] = (),
    style_cell: StyleCell | None = None,
    with_head: bool = True,
) -> Table:
    """Return a table of these columns as they are. `rows` picks some of the rows and keeps the widths of all."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0), show_header=with_head)
    for column in columns:
        table.add_column(
            column.head,
            justify="right" if column.is_right else "left",
            no_wrap=not column.wraps,
            min_width=None if rows is None else _width(column),
        )
    for at in range(len(columns[0].cells)) if rows is None else rows:
        cells = [Text(column.cells[at], style=_cell_style(column, at, style_cell)) for column in columns]
        table.add_row(*cells, style=styles[at] if styles else "")
    return table


def make_grid(rows: Iterable[tuple[str, str]], *, indent: int = 0) -> Table:
    """Return keys with their texts beside them; a key that repeats is shown once."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    before = ""
    for key, text in rows:
        shown = "" if key == before else key
        grid.add_row(Text(" " * indent + shown, style="dim", no_wrap=True), Text(text, overflow="fold"))
        before = key
    return grid


def widest(texts: Iterable[str]) -> int:
    """Return the cells that the widest text takes."""
    return max(map(cell_len, texts), default=0)


def cut_end(text: str, room: int) -> str:
    """Return the begin of a text in at most `room` cells."""
    shown = Text(text)
    shown.truncate(room, overflow="ellipsis")
    return shown.plain


def cut_begin(text: str, room: int) -> str:
    """Return the end of a text in at most `room` cells."""
    return text if cell_len(text) <= room else cut_end(text[::-1], room)[::-1]


def fit_texts(names: Sequence[str], places: Sequence[str], room: int, *, cut: str) -> tuple[list[str], list[str]]:
    """Return two columns of text that share `room` cells. Names are cut at their end, places as `cut` says."""
    room = max(room, _LEAST_PAIR)
    least = room // 3 if cut == "end" else room // 2
    place_room = min(widest(places), max(room - widest(names), least))
    return [cut_end(name, room - place_room) for name in names], [_cut(place, place_room, cut) for place in places]


def _cut_texts(columns: Sequence[Column], room: int) -> list[Column]:
    texts = [at for at, column in enumerate(columns) if column.cut is not None]
    fitted = list(columns)
    if len(texts) == 1:
        (at,) = texts
        column = columns[at]
        cells = [_cut(cell, max(room, cell_len(column.head)), str(column.cut)) for cell in column.cells]
        fitted[at] = replace(column, cells=cells)
    elif len(texts) == 2:
        first, second = (columns[at] for at in texts)
        pair = fit_texts([*first.cells, first.head], [*second.cells, second.head], room, cut=str(second.cut))
        for at, column, (*fit, _) in zip(texts, (first, second), pair, strict=True):
            fitted[at] = replace(column, cells=fit)
    return fitted


def _cut(text: str, room: int, cut: str) -> str:
    is_begin = cut == "begin" or (cut == "line" and _ENDS_WITH_LINE.search(text) is not None)
    return cut_begin(text, room) if is_begin else cut_end(text, room)


def _width(column: Column, *, wrap: bool = True) -> int:
    if column.wraps and wrap:
        return widest([column.head, *(word for cell in column.cells for word in cell.split())])
    return widest([column.head, *column.cells])


def _cell_style(column: Column, at: int, style_cell: StyleCell | None) -> str:
    if style_cell is not None:
        return style_cell(column, at)
    return "dim" if column.is_minor else ""
