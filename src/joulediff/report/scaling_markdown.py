"""A step at several sizes as Markdown: the tables, and the plots as text."""

from __future__ import annotations

from joulediff.model.apis.scaling import Scaling
from joulediff.report.markdown import escape, text_table
from joulediff.report.sanitize import plain_record
from joulediff.report.views.scaling.rows import (
    growth_table,
    has_growth,
    headline,
    note_texts,
    plots,
    size_table,
    warning_texts,
)
from joulediff.report.views.warnings import NOT_TRUSTWORTHY

_PLOT_WIDTH = 80


def scaling_to_markdown(found: Scaling) -> str:
    """Return a series of sizes as Markdown."""
    plain = plain_record(found)
    warnings = warning_texts(plain) + ([] if plain.trustworthy else [NOT_TRUSTWORTHY])
    parts = [
        [f"### {escape(headline(plain))}"],
        [f"- {escape(text)}" for text in warnings],
        list(text_table(size_table(plain))) if plain.points else [],
        list(text_table(growth_table(plain))) if has_growth(plain) else [],
        *(["```text", *lines, "```"] for lines in plots(plain, _PLOT_WIDTH)),
        [f"- {escape(text)}" for text in note_texts(plain)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"
