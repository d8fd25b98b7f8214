"""A new recording in a few lines on a terminal: its energy, its size, and warnings if it is not trustworthy."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.energy.ledger import Books
from joulediff.model.run import Run
from joulediff.model.units import format_si, format_time
from joulediff.report.sanitize import plain_text
from joulediff.report.terminal.text import bullets, print_parts
from joulediff.report.views.run_sentences import largest_text, parts_text
from joulediff.report.views.short_texts import count_text, format_interval
from joulediff.report.views.warnings import NOT_TRUSTWORTHY, is_trustworthy, unexplained_text


def print_summary(run: Run, books: Books, console: Console, *, path: str, size_bytes: int) -> None:
    """Print a recording that was written to `path`."""
    print_parts(console, *_lines(run, books, console.width, f"{path}  {format_si(size_bytes, 'B')}"))


def _lines(run: Run, books: Books, width: int, file: str) -> Iterator[RenderableType]:
    found = run.measurement
    if found is not None:
        yield Text(f"{run.label}  {format_interval(found.energy)} a step   {format_time(found.step_s)} a step")
    yield Text(_counts(run))
    for line in (parts_text(books), largest_text(run, books, width)):
        if line is not None:
            yield Text(plain_text(line))
    warnings = () if found is None else found.warnings
    yield Text(f"{file}   {count_text(len(warnings), 'warning')}" if warnings else file)
    if found is not None and not is_trustworthy(run, books):
        unexplained = unexplained_text(books)
        shown = () if found.trustworthy else warnings
        yield from bullets([*shown, *([] if unexplained is None else [unexplained])], "!", "yellow")
        yield Text(NOT_TRUSTWORTHY, style="bold yellow")


def _counts(run: Run) -> str:
    if run.ops or run.kernels:
        return f"{count_text(len(run.ops), 'operator')}, {count_text(len(run.kernels), 'kernel')}"
    skipped = [each.note for each in run.passes if each.status == "skipped" and each.note]
    return skipped[0] if skipped else "no operators"
