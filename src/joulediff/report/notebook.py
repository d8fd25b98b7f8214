"""A result as HTML for a notebook: its terminal report, with the colours of the page around it.

Text of a recording is escaped. There is no script, no style sheet and nothing to load.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterator

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.style import Style

from joulediff.report.show import print_result
from joulediff.report.views.run.rows import By

WIDTH = 110
# Readable on white and on black: each has a contrast of 3 to 1 or more with both.
_COLOURS = {"yellow": "#b07d00", "cyan": "#0e8fa3", "green": "#2e8b57", "red": "#d9483b", "magenta": "#b65fc9"}
_FRAME = "margin:0;padding:.5em 0;line-height:1.35;overflow-x:auto;color:inherit;background:transparent"


def to_html(record: object, *, by: By = "op", top: int | None = None, every: bool = False) -> str:
    """Return the report of a record as HTML."""
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, color_system="standard", force_terminal=True, highlight=False)
    print_result(record, console, by=by, top=top, every=every)
    text = "\n".join("".join(_spans(line, console)) for line in file.getvalue().splitlines())
    return f'<pre class="joulediff" style="{_FRAME}">{text}</pre>'


def _spans(line: str, console: Console) -> Iterator[str]:
    for text in AnsiDecoder().decode(line):
        for segment in text.render(console):
            style = _css(segment.style) if isinstance(segment.style, Style) else ""
            shown = html.escape(segment.text.rstrip("\n"))
            yield f'<span style="{style}">{shown}</span>' if style and shown else shown


def _css(style: Style) -> str:
    colour = _COLOURS.get(style.color.name) if style.color is not None else None
    parts = [
        "font-weight:bold" if style.bold else "",
        "opacity:.7" if style.dim else "",
        f"color:{colour}" if colour else "",
    ]
    return ";".join(filter(None, parts))
