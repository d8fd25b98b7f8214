"""A match on one screen: the matched share of both runs, where they differ, and a table of regions."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from joulediff.report.limits import TOP_REGIONS
from joulediff.report.terminal.table import GAP, to_table
from joulediff.report.terminal.text import bullet, print_parts
from joulediff.report.views.match_rows import (
    MatchReport,
    basis_text,
    difference_texts,
    kinds_text,
    match_table,
    side_texts,
    unmatched_texts,
)


def print_match(report: MatchReport, console: Console, *, top: int = TOP_REGIONS) -> None:
    """Print a match."""
    unmatched = [Text(text, style="yellow") for text in unmatched_texts(report)]
    print_parts(console, *_head(report), to_table(match_table(report, top), console.width), *unmatched)


def _head(report: MatchReport) -> Iterator[RenderableType]:
    sides = list(side_texts(report))
    width = max(cell_len(label) for _, label, _ in sides)
    for letter, label, about in sides:
        text = Text(f"{letter} ", style="dim")
        text.append(label.ljust(width + GAP), style="bold")
        yield text.append(about, style="default")
    yield from (Text(text) for text in (kinds_text(report), basis_text(report)) if text)
    yield from (bullet("!", text, "yellow") for text in difference_texts(report))
    yield Text()
