"""A diff as the text of any report, as the command line shows it and writes it to files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console

from joulediff.model.diff import Diff
from joulediff.model.errors import JoulediffError
from joulediff.report.json.diff import diff_to_json
from joulediff.report.markdown import diff_to_markdown
from joulediff.report.terminal.diff import TOP, print_diff

Form = Literal["terminal", "json", "markdown"]


def render(
    diff: Diff,
    form: Form,
    path: str | Path | None = None,
    *,
    width: int = 120,
    top: int = TOP,
    every: bool = False,
) -> str:
    """Return a diff as text without colours, and write it to `path` if one is given.

    `width` applies to the terminal report; the JSON is always complete.
    """
    text = _to_text(diff, form, width=width, top=top, every=every)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _to_text(diff: Diff, form: Form, *, width: int, top: int, every: bool) -> str:
    if form == "json":
        return diff_to_json(diff)
    if form == "markdown":
        return diff_to_markdown(diff, top=top, every=every)
    if form != "terminal":
        raise JoulediffError(f"there is no report {form!r}", fix=f"choose one of {', '.join(get_args(Form))}")
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False, highlight=False)
    print_diff(diff, console, top=top, every=every)
    return file.getvalue()
