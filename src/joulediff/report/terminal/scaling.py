"""A step at several sizes on a terminal: its costs at each size, how they grow, and the plots."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.model.apis.scaling import Scaling
from joulediff.report.sanitize import plain_record
from joulediff.report.terminal.table import to_table
from joulediff.report.terminal.text import bullets, print_parts
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

# A wider plot is no clearer.
_PLOT_WIDTH = 100


def print_scaling(found: Scaling, console: Console) -> None:
    """Print a series of sizes."""
    plain = plain_record(found)
    parts: list[RenderableType] = [Text(headline(plain), style="bold")]
    if plain.points:
        parts += ["", to_table(size_table(plain), console.width)]
    if has_growth(plain):
        parts += ["", to_table(growth_table(plain), console.width)]
    for lines in plots(plain, min(console.width, _PLOT_WIDTH)):
        parts += ["", Text("\n".join(lines), no_wrap=True)]
    parts += ["", *(Text(text, style="dim") for text in note_texts(plain))]
    parts += bullets(warning_texts(plain), "!", "yellow")
    if not plain.trustworthy:
        parts.append(Text(NOT_TRUSTWORTHY, style="bold yellow"))
    print_parts(console, *parts)
