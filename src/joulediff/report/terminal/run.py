"""A run on a terminal: on one screen, or in a few lines right after it was recorded.

Text of a file is sanitized first: a recording may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.energy.device_time import has_trace
from joulediff.energy.host_energy import HostBy
from joulediff.energy.ledger import Books, open_books
from joulediff.model.energy import Scale
from joulediff.model.run import Run
from joulediff.model.units import format_si, format_time
from joulediff.report.limits import TOP_ROWS
from joulediff.report.sanitize import plain_record, plain_text
from joulediff.report.terminal.measurement import device_lines, headline, many_steps_lines
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.run.facts import is_on_cpu
from joulediff.report.views.run.host import TOP_LINES, host_table, host_title, split_table, split_title
from joulediff.report.views.run.ledger import ledger_table
from joulediff.report.views.run.rows import By, fold_rows, group_rows, has_regions
from joulediff.report.views.run.sentences import (
    clocks_text,
    created_text,
    largest_text,
    next_command,
    parts_text,
    split_text,
    timeline_texts,
    title_text,
)
from joulediff.report.views.run.tables import energy_table, has_energies, time_table
from joulediff.report.views.short_texts import count_text, format_interval
from joulediff.report.views.warnings import (
    NOT_TRUSTWORTHY,
    books_text,
    find_notes,
    find_warnings,
    is_trustworthy,
)

# More warnings or notes than this are counted instead, so that the numbers stay on the screen.
MAX_WARNINGS = 5
MAX_NOTES = 3
_REST = "--json - has them"


def print_run(
    run: Run,
    console: Console,
    *,
    by: By = "op",
    top: int = TOP_ROWS,
    path: str | None = None,
    scale: Scale | None = None,
) -> None:
    """Print the energy of a run, its warnings, and the parts of energy and device time.

    `path` is its file, named in the next command. `scale` asks for the cost of many steps too.
    """
    books = open_books(run)
    tables = _tables(run, books, console.width, by, top)
    timeline = [Text(plain_text(line)) for line in timeline_texts(run)]
    command = None if path is None else next_command(run, by, path)
    following = [] if command is None else [Text(plain_text(f"next: {command}"), style="cyan")]
    host = list(_host_energy(run, console.width, by, top)) or _host(run, console.width)
    print_parts(console, *_header(run, books, scale), *tables, *timeline, *host, *following)


def print_summary(run: Run, books: Books, console: Console, *, path: str, size_bytes: int) -> None:
    """Print the energy and size of a recording that was written to `path`, and warnings if it is not trustworthy."""
    print_parts(console, *_summary(run, books, console.width, f"{path}  {format_si(size_bytes, 'B')}"))


def _header(run: Run, books: Books, scale: Scale | None) -> Iterable[RenderableType]:
    found = None if run.measurement is None else plain_record(replace(run.measurement, label=run.label))
    if found is None:
        yield Text.assemble((plain_text(run.label), "bold"), "  energy not measured")
    else:
        yield headline(found)
        yield from many_steps_lines(found, scale)
    about = [run.program, f"recorded {created_text(run.created)}", f"joulediff {run.tool}"]
    yield Text(plain_text(", ".join(filter(None, about))), style="dim")
    if found is not None:
        yield from device_lines(found)
    warnings = [plain_text(warning) for warning in find_warnings(run, books)]
    yield from bullets(warnings, "!", "yellow", most=MAX_WARNINGS, rest=_REST)
    if found is not None and not is_trustworthy(run, books):
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")
    notes = [plain_text(note) for note in find_notes(run, books)]
    yield from bullets(notes, "-", "dim", most=MAX_NOTES, rest=_REST)


def _tables(run: Run, books: Books, width: int, by: By, top: int) -> Iterable[RenderableType]:
    accounts = [replace(a, domain=plain_text(a.domain)) for a in books.accounts if a.domain not in books.rested]
    is_split_by_host = run.is_plain and len(accounts) == 1 and split_table(run, "function", top) is not None
    if accounts and not is_split_by_host:
        yield from ("", to_table(ledger_table(accounts), width))
    yield from _parts_table(run, books, width, by, top, f"energy of one step, {title_text(run)}")
    if by != "region" and has_regions(run):
        yield from _parts_table(run, books, width, "region", top, "energy of one step by region")
    if run.measurement is not None and has_energies(group_rows(run, by, books), books):
        for line in (split_text(run, books), clocks_text(run)):
            if line is not None:
                yield Text(plain_text(line), style="dim")


def _parts_table(run: Run, books: Books, width: int, by: By, top: int, title: str) -> Iterable[RenderableType]:
    """Yield the rows of a run by energy, or by device time if no row has an energy."""
    rows = plain_record(fold_rows(group_rows(run, by, books), top, books))
    if not rows:
        return
    if run.measurement is None or not has_energies(rows, books):
        table = time_table(rows, by=by, traced=has_trace(run), on_cpu=is_on_cpu(run))
        shown = "device time of one step by region" if by == "region" else title_text(run)
        yield from ("", Text(shown, style="dim"), to_table(table, width))
        return
    table = energy_table(rows, books, by=by, on_cpu=is_on_cpu(run), metered=run.measurement.energy)
    yield from ("", Text(title, style="dim"), to_table(table, width))


def _host(run: Run, width: int) -> Iterator[RenderableType]:
    title, table = host_title(run), host_table(run)
    if title is not None and table is not None:
        yield from ("", Text(title, style="dim"), to_table(plain_record(table), width))


def _host_energy(run: Run, width: int, by: By, top: int) -> Iterator[RenderableType]:
    """Yield the functions and the lines of a run without operators, or with `by` lines the lines alone."""
    functions: tuple[HostBy, int] = ("function", top)
    lines: tuple[HostBy, int] = ("line", top if by == "line" else TOP_LINES)
    rows = [lines] if by == "line" else [functions, lines]
    for each, most in rows:
        table = split_table(run, each, most)
        if table is not None:
            yield from ("", Text(split_title(each), style="dim"), to_table(plain_record(table), width))


def _summary(run: Run, books: Books, width: int, file: str) -> Iterator[RenderableType]:
    found = run.measurement
    if found is not None:
        yield Text(f"{run.label}  {format_interval(found.energy)} a step   {format_time(found.step_s)} a step")
    yield Text(_work_text(run))
    for line in (parts_text(books), largest_text(run, books, width)):
        if line is not None:
            yield Text(plain_text(line))
    warnings = () if found is None else found.warnings
    yield Text(f"{file}   {count_text(len(warnings), 'warning')}" if warnings else file)
    if found is not None and not is_trustworthy(run, books):
        unexplained = books_text(books)
        shown = () if found.trustworthy else warnings
        yield from bullets([*shown, *([] if unexplained is None else [unexplained])], "!", "yellow")
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")


def _work_text(run: Run) -> str:
    if run.ops or run.kernels:
        return f"{count_text(len(run.ops), 'operator')}, {count_text(len(run.kernels), 'kernel')}"
    skipped = [each.note for each in run.passes if each.status == "skipped" and each.note]
    return skipped[0] if skipped else "no operators"
