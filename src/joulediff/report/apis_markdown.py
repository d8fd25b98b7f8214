"""The API calls of a script as Markdown: its energy, ledger, APIs and lines, and its source with the energy of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from joulediff.model.apis.api_run import ApiRun
from joulediff.report.limits import TOP_ROWS
from joulediff.report.markdown import code, escape, text_table
from joulediff.report.sanitize import plain_record
from joulediff.report.views.apis.ledger import api_ledger_table
from joulediff.report.views.apis.lines import TOP_LINES, line_table
from joulediff.report.views.apis.sentences import (
    about_text,
    energy_text,
    meter_texts,
    parts_text,
    size_text,
    titles,
    warning_texts,
)
from joulediff.report.views.apis.source import AnnotatedFile, annotate_sources
from joulediff.report.views.apis.table import api_table, short_note
from joulediff.report.views.columns import TextTable
from joulediff.report.views.warnings import NOT_TRUSTWORTHY

_BACKTICKS = re.compile("`+")
_LEAST_FENCE = 3


def api_run_to_markdown(run: ApiRun, *, top: int = TOP_ROWS, every: bool = False) -> str:
    """Return a run as Markdown, with `top` rows in each table; `every` shows all rows and files as a whole."""
    plain = plain_record(replace(run, sources=()))
    apis, lines = titles(plain)
    note = short_note(plain)
    parts = [
        list(_head(plain)),
        list(_table(api_ledger_table(plain))),
        list(_table(api_table(plain, top=top, every=every), apis)),
        [] if note is None else [f"<sub>{escape(note)}</sub>"],
        list(_table(line_table(plain, top=min(top, TOP_LINES), every=every), lines)),
        *(list(fenced(each)) for each in annotate_sources(run, every=every)),
    ]
    return "\n\n".join("\n".join(each) for each in parts if each) + "\n"


def fenced(file: AnnotatedFile) -> Iterator[str]:
    """Yield a file as a block that none of its lines can end."""
    runs = [len(found) for line in file.lines for found in _BACKTICKS.findall(line)]
    fence = "`" * max(_LEAST_FENCE, max(runs, default=0) + 1)
    yield f"**{code(file.file)}**"
    yield ""
    yield f"{fence}text"
    yield from file.lines
    yield fence


def _head(run: ApiRun) -> Iterator[str]:
    yield f"### {code(run.label)} {escape(energy_text(run))}"
    yield ""
    yield escape(", ".join(size_text(run).split("   ")))
    yield ""
    yield from _list((about_text(run), *meter_texts(run)))
    warnings = warning_texts(run) + ([] if run.trustworthy else [NOT_TRUSTWORTHY])
    if warnings:
        yield ""
        yield from (f"- **{escape(warning)}**" for warning in warnings)
    parts = parts_text(run)
    if parts is not None:
        yield ""
        yield escape(parts)


def _list(texts: Iterable[str]) -> Iterator[str]:
    return (f"- {escape(text)}" for text in texts)


def _table(table: TextTable | None, title: str | None = None) -> Iterator[str]:
    if table is None:
        return
    if title is not None:
        yield from (f"**{escape(title)}**", "")
    yield from text_table(table)
