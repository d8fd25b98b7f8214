"""A run on one screen: its energy, warnings, and the parts of the energy and of the device's time.

Text from the run is sanitized first: a recording may come from anywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.energy.device_time import has_trace
from joulediff.energy.ledger import Books, open_books
from joulediff.model.run import Kernel, Run
from joulediff.model.units import format_share, format_si, format_time
from joulediff.report.limits import TOP_ROWS
from joulediff.report.sanitize import plain_record, plain_text
from joulediff.report.terminal.measurement import device_lines, headline
from joulediff.report.terminal.table import cut_end, to_table
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.ledger import ledger_table
from joulediff.report.views.names import short_files, short_kernel
from joulediff.report.views.run_facts import is_on_cpu
from joulediff.report.views.run_rows import By, fold_rows, group_rows
from joulediff.report.views.run_sentences import clocks_text, split_text
from joulediff.report.views.run_tables import energy_table, has_energies, time_table
from joulediff.report.views.timeline import Activity, Gap, WaitPlace, group_waits, trace_activity
from joulediff.report.views.warnings import (
    NOT_TRUSTWORTHY,
    find_notes,
    find_warnings,
    is_trustworthy,
    is_worth_repeating,
)

# More warnings or notes than this are counted instead, so that the numbers stay on the screen.
MAX_WARNINGS = 5
MAX_NOTES = 3
_REST = "--json - has them"


def print_run(run: Run, console: Console, *, by: By = "op", top: int = TOP_ROWS, path: str | None = None) -> None:
    """Print one run; `path` is its file, named in the next command."""
    books = open_books(run)
    tables = _tables(run, books, console.width, by, top)
    print_parts(console, *_header(run, books), *tables, *_timeline(run), *_next(run, by, path))


def _header(run: Run, books: Books) -> Iterable[RenderableType]:
    found = None if run.measurement is None else plain_record(replace(run.measurement, label=run.label))
    if found is None:
        yield Text.assemble((plain_text(run.label), "bold"), "  energy not measured")
    else:
        yield headline(found)
    about = [run.program, f"recorded {_when(run.created)}", f"joulediff {run.tool}"]
    yield Text(plain_text(", ".join(filter(None, about))), style="dim")
    if found is not None:
        yield from device_lines(found)
    warnings = [plain_text(warning) for warning in find_warnings(run, books)]
    yield from bullets(warnings, "!", "yellow", most=MAX_WARNINGS, rest=_REST)
    if found is not None and not is_trustworthy(run, books):
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")
    notes = [plain_text(note) for note in find_notes(run, books)]
    yield from bullets(notes, "-", "dim", most=MAX_NOTES, rest=_REST)


def _when(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return created


def _tables(run: Run, books: Books, width: int, by: By, top: int) -> Iterable[RenderableType]:
    accounts = [replace(a, domain=plain_text(a.domain)) for a in books.accounts if a.domain not in books.rested]
    if accounts:
        yield from ("", to_table(ledger_table(accounts), width))
    rows = plain_record(fold_rows(group_rows(run, by, books), top, books))
    if not rows:
        return
    if run.measurement is None or not has_energies(rows, books):
        table = time_table(rows, by=by, traced=has_trace(run), on_cpu=is_on_cpu(run))
        yield from ("", Text(_title(run), style="dim"), to_table(table, width))
        return
    table = energy_table(rows, books, by=by, on_cpu=is_on_cpu(run), metered=run.measurement.energy)
    yield from ("", Text(f"energy of one step, {_title(run)}", style="dim"), to_table(table, width))
    for line in (split_text(run, books), clocks_text(run)):
        if line is not None:
            yield Text(plain_text(line), style="dim")


def _title(run: Run) -> str:
    if not has_trace(run):
        return "operators in one step; no trace, so no times"
    mixed = any(kernel.kind == "cpu" for kernel in run.kernels)
    what = "time in operators" if is_on_cpu(run) else "device time" + (" and time in CPU operators" if mixed else "")
    step = f" of {format_time(run.traced_s)}" if run.traced_s is not None else ""
    return f"{what} in one traced step{step}"


def _timeline(run: Run) -> Iterable[RenderableType]:
    for activity in trace_activity(run):
        yield Text(plain_text(_activity(activity) + _copies(run.kernels, activity.device)))
        if activity.largest_gap is not None:
            yield Text(plain_text(_gap(run, activity.largest_gap)))
    if waits := group_waits(run):
        yield Text(plain_text(_waits(run, waits)))


def _activity(found: Activity) -> str:
    share = format_share(found.idle_s / found.span_s) if found.span_s else "?%"
    if found.device == "cpu":  # the CPU also runs Python and dispatches operators: the rest is not idle
        return f"cpu: {format_time(found.busy_s)} in operators, {share} of the time outside of them"
    return f"{found.device} busy {format_time(found.busy_s)} of {format_time(found.span_s)}, idle {share}"


def _copies(kernels: Sequence[Kernel], device: str) -> str:
    moves = [kernel for kernel in kernels if kernel.kind in ("memcpy", "memset") and kernel.device == device]
    if not moves:
        return ""
    count = "1 copy" if len(moves) == 1 else f"{len(moves):,} copies"
    sizes = [kernel.size_bytes for kernel in moves if kernel.size_bytes is not None]
    size = f" for {format_si(sum(sizes), 'B', digits=3)}" if len(sizes) == len(moves) else ""
    return f"; {count}: {format_time(sum(kernel.duration_s for kernel in moves))}{size}"


def _gap(run: Run, gap: Gap) -> str:
    after = "the start of the step" if gap.after is None else _launcher(run, gap.after)
    before = "the end of the step" if gap.before is None else _launcher(run, gap.before)
    return f"largest gap {format_time(gap.duration_s)}: between {after} and {before}"


def _launcher(run: Run, kernel: Kernel) -> str:
    return cut_end(short_kernel(kernel.name) if kernel.op is None else run.ops[kernel.op].name, 40)


def _waits(run: Run, places: Sequence[WaitPlace]) -> str:
    worst, names = places[0], short_files(frame.file for frame in run.frames)
    line = "an unknown line" if worst.frame is None else f"{names[worst.frame.file]}:{worst.frame.line}"
    total = f"host waited {format_time(sum(place.wait_s for place in places))}"
    if len(places) == 1:
        return f"{total} in {worst.name}, {line}"
    return f"{total} in {len(places)} places; most in {worst.name}, {line}: {format_time(worst.wait_s)}"


def _next(run: Run, by: By, path: str | None) -> Iterable[RenderableType]:
    if path is None:
        return
    command = None
    if run.ops or run.kernels:
        command = f"joulediff show {shlex.quote(path)} {_next_view(run, by)}"
    elif run.program and is_worth_repeating(run):
        command = f"joulediff record {shlex.quote(run.program)}"
    if command is not None:
        yield Text(plain_text(f"next: {command}"), style="cyan")


def _next_view(run: Run, by: By) -> str:
    if by == "kernel" or (by == "line" and not run.kernels):
        return "--json -"
    return "--by line" if run.ops and by != "line" else "--by kernel"
