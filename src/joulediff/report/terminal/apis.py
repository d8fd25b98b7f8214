"""The API calls of a script on a terminal: the energy of the program, its ledger, its APIs and its lines.

Text of a file is sanitized first: a recording may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.model.apis.api_run import ApiRun
from joulediff.report.limits import TOP_ROWS
from joulediff.report.sanitize import plain_record, plain_text
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.apis.ledger import api_ledger_table
from joulediff.report.views.apis.lines import TOP_LINES, line_table
from joulediff.report.views.apis.sentences import (
    about_text,
    energy_text,
    meter_texts,
    next_text,
    parts_text,
    size_text,
    titles,
    warning_texts,
)
from joulediff.report.views.apis.table import api_table, short_note
from joulediff.report.views.columns import TextTable
from joulediff.report.views.warnings import NOT_TRUSTWORTHY

# More warnings than this are counted instead, so that the numbers stay on the screen.
MAX_WARNINGS = 5
_REST = "--json - has them"


def print_api_run(
    run: ApiRun,
    console: Console,
    *,
    top: int = TOP_ROWS,
    every: bool = False,
    path: str | None = None,
) -> None:
    """Print the energy of a program, its ledger, its APIs and its lines; `path` is its file.

    `top` limits the rows of each table; `every` shows all of them.
    """
    # Sources have line breaks, and are not shown here.
    plain = plain_record(replace(run, sources=()))
    following = next_text(plain, None if path is None else plain_text(path))
    print_parts(
        console,
        *_header(plain),
        *_table(api_ledger_table(plain), console.width),
        *_apis(plain, console.width, top, every=every),
        *_lines(plain, console.width, top, every=every),
        *([] if following is None else [Text(f"next: {following}", style="cyan")]),
    )


def _header(run: ApiRun) -> Iterator[RenderableType]:
    headline = Text.assemble((run.label, "bold"), "  ", (energy_text(run), "bold cyan"))
    headline.append(f"   {size_text(run)}", style="dim")
    yield headline
    yield Text(about_text(run), style="dim")
    yield from (Text(text, style="dim") for text in meter_texts(run))
    yield from bullets(warning_texts(run), "!", "yellow", most=MAX_WARNINGS, rest=_REST)
    if not run.trustworthy:
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")
    parts = parts_text(run)
    if parts is not None:
        yield Text(parts)


def _apis(run: ApiRun, width: int, top: int, *, every: bool) -> Iterator[RenderableType]:
    yield from _table(api_table(run, top=top, every=every), width, titles(run)[0])
    note = short_note(run)
    if note is not None:
        yield Text(note, style="dim")


def _lines(run: ApiRun, width: int, top: int, *, every: bool) -> Iterable[RenderableType]:
    return _table(line_table(run, top=min(top, TOP_LINES), every=every), width, titles(run)[1])


def _table(table: TextTable | None, width: int, title: str | None = None) -> Iterator[RenderableType]:
    if table is None:
        return
    yield ""
    if title is not None:
        yield Text(title, style="dim")
    yield to_table(table, width)
