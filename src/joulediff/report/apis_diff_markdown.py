"""Two runs of scripts as Markdown: the facts of the terminal report."""

from __future__ import annotations

from collections.abc import Iterator

from joulediff.model.apis.api_diff import ApiDiff
from joulediff.report.limits import TOP_FINDINGS
from joulediff.report.markdown import code, escape, text_table
from joulediff.report.sanitize import plain_record
from joulediff.report.views.apis.diff_sentences import (
    APIS_TITLE,
    LEDGER_TITLE,
    LINES_TITLE,
    ONCE,
    changes_text,
    gate_advice,
    headline,
    side_texts,
    warning_texts,
)
from joulediff.report.views.apis.diff_tables import api_diff_table, ledger_diff_table, line_diff_table
from joulediff.report.views.columns import TextTable
from joulediff.report.views.diff_sentences import condition_text
from joulediff.report.views.gate import gate_text


def api_diff_to_markdown(diff: ApiDiff, *, top: int = TOP_FINDINGS, every: bool = False) -> str:
    """Return a comparison as Markdown: `top` APIs and lines that differ, or with `every` all of them."""
    plain = plain_record(diff)
    parts = [
        [f"### {escape(headline(plain))}"],
        list(_sides(plain)),
        list(_conditions(plain)),
        list(_gate(plain)),
        [escape(f"{changes_text(plain)} {ONCE[0].upper()}{ONCE[1:]}.".strip())],
        list(_table(api_diff_table(plain, top=top, every=every), APIS_TITLE)),
        list(_table(line_diff_table(plain, top=top, every=every), LINES_TITLE)),
        list(_table(ledger_diff_table(plain), LEDGER_TITLE)),
        [] if plain.next is None else [f"next: {code(plain.next)}"],
    ]
    return "\n\n".join("\n".join(each) for each in parts if each) + "\n"


def _sides(diff: ApiDiff) -> Iterator[str]:
    for letter, (label, energy, about) in zip("AB", side_texts(diff), strict=True):
        yield f"- {letter} {code(label)} {escape(f'{energy}, {about}')}"


def _conditions(diff: ApiDiff) -> Iterator[str]:
    for each in diff.condition_differences:
        text = escape(condition_text(each))
        yield f"- **{text}**" if each.serious else f"- {text}"
    yield from (f"- {escape(text)}" for text in (*warning_texts(diff), *diff.notes))


def _gate(diff: ApiDiff) -> Iterator[str]:
    if diff.gate is not None:
        advice = gate_advice(diff, diff.gate)
        yield f"**{escape(gate_text(diff.gate))}**{'' if advice is None else f' {escape(advice)}'}"


def _table(table: TextTable | None, title: str) -> Iterator[str]:
    if table is not None:
        yield from (f"**{escape(title)}**", "", *text_table(table))
