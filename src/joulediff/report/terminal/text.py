"""Parts that all terminal reports are made of: lines, bullets, and lists that are cut short."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from joulediff.report.limits import WIDTH
from joulediff.report.sanitize import plain_text


def open_console(*, stderr: bool = False) -> Console:
    """Return the console for reports: as wide as the terminal, or of the default width without one."""
    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH
    return Console(width=wide, highlight=False, soft_wrap=False, stderr=stderr)


def print_parts(console: Console, *parts: RenderableType) -> None:
    """Print parts without the blanks that pad lines to the full width: a copied report would contain them."""
    for line in console.render_lines(Group(*parts), pad=False):
        text = Text.assemble(*((plain_text(segment.text), segment.style or "") for segment in line), end="")
        text.rstrip()
        console.print(text, soft_wrap=True, end="\n")


def bullet(mark: str, text: str, style: str) -> Table:
    """Return a text after a mark; its further lines are indented like the first."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(mark, style=style), Text(text, style=style))
    return grid


def bullets(
    texts: Sequence[str], mark: str, style: str, *, most: int | None = None, rest: str = ""
) -> Iterator[RenderableType]:
    """Yield a bullet for each text; more than `most` are counted, and `rest` says how to see them."""
    shown = texts if most is None or len(texts) <= most + 1 else texts[:most]
    yield from (bullet(mark, text, style) for text in shown)
    if len(shown) < len(texts):
        yield bullet(mark, f"{len(texts) - len(shown):,} more: {rest}", style)
