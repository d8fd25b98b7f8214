"""A run as Markdown: its energy, the parts of it, and the rows of its operators and regions."""

from __future__ import annotations

from collections.abc import Iterator

from joulediff.energy.device_time import has_trace
from joulediff.energy.ledger import Books, open_books
from joulediff.model.measurement import cost_text
from joulediff.model.run import Run
from joulediff.report.markdown import code, escape, text_table
from joulediff.report.sanitize import plain_record
from joulediff.report.views.run.facts import is_on_cpu
from joulediff.report.views.run.ledger import ledger_table
from joulediff.report.views.run.rows import By, fold_rows, group_rows, has_regions
from joulediff.report.views.run.sentences import created_text
from joulediff.report.views.run.tables import energy_table, has_energies, time_table
from joulediff.report.views.warnings import NOT_TRUSTWORTHY, find_notes, find_warnings, is_trustworthy


def run_to_markdown(run: Run, *, top: int) -> str:
    """Return a run as Markdown, with `top` rows in each table."""
    books = open_books(run)
    accounts = [account for account in books.accounts if account.domain not in books.rested]
    parts = [
        list(_head(run, books)),
        list(text_table(ledger_table(accounts))) if accounts else [],
        list(_rows(run, books, "op", top)),
        list(_rows(run, books, "region", top)) if has_regions(run) else [],
        [f"- {escape(note)}" for note in find_notes(run, books)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _head(run: Run, books: Books) -> Iterator[str]:
    found = run.measurement
    cost = "energy not measured" if found is None else f"{cost_text(found.energy, found.step_s)} a step"
    yield f"### {code(run.label)} {escape(cost)}"
    about = [run.program, f"recorded {created_text(run.created)}", f"joulediff {run.tool}"]
    yield ""
    yield f"<sub>{escape(', '.join(filter(None, about)))}</sub>"
    warnings = list(find_warnings(run, books))
    if found is not None and not is_trustworthy(run, books):
        warnings.append(NOT_TRUSTWORTHY)
    if warnings:
        yield ""
        yield from (f"- {escape(warning)}" for warning in warnings)


def _rows(run: Run, books: Books, by: By, top: int) -> Iterator[str]:
    rows = plain_record(fold_rows(group_rows(run, by, books), top, books))
    if not rows:
        return
    if run.measurement is None or not has_energies(rows, books):
        yield from text_table(time_table(rows, by=by, traced=has_trace(run), on_cpu=is_on_cpu(run)))
    else:
        yield from text_table(energy_table(rows, books, by=by, on_cpu=is_on_cpu(run), metered=run.measurement.energy))
