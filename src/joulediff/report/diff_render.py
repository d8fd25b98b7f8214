"""A diff in any form as one text: what the command line shows, and what it writes to a file."""

from __future__ import annotations

import io
from typing import Literal

from rich.console import Console

from joulediff.diffs import Diff
from joulediff.report.diff_json import diff_to_json
from joulediff.report.diff_markdown import diff_to_markdown
from joulediff.report.diff_terminal import TOP, print_diff

Form = Literal["terminal", "json", "markdown"]


def render(diff: Diff, form: Form, *, width: int = 120, top: int = TOP, every: bool = False) -> str:
    """Return a diff as text without colours. `width` shapes the terminal report; the JSON always holds everything."""
    if form == "json":
        return diff_to_json(diff)
    if form == "markdown":
        return diff_to_markdown(diff, top=top, every=every)
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False, highlight=False)
    print_diff(diff, console, top=top, every=every)
    return file.getvalue()
