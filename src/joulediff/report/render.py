"""The reports of a diff: one entry for each format. A format is imported when a report is written in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from joulediff.model.diff import Diff
from joulediff.model.errors import JoulediffError
from joulediff.report.limits import TOP_FINDINGS, WIDTH


@dataclass(frozen=True, slots=True)
class Layout:
    """How much a report shows; the JSON is always complete."""

    width: int = WIDTH
    """Columns of the terminal report."""
    top: int = TOP_FINDINGS
    every: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A format: the suffixes of its files, and a function that returns its text."""

    suffixes: tuple[str, ...]
    to_text: Callable[[Diff, Layout], str]


def render(
    diff: Diff,
    form: str,
    path: str | Path | None = None,
    *,
    width: int = WIDTH,
    top: int = TOP_FINDINGS,
    every: bool = False,
) -> str:
    """Return a diff as text without colours, and write it to `path` if one is given.

    `form` is `terminal`, `json` or `markdown`. `width` applies to the terminal report; the JSON is always complete.
    """
    if form not in REPORTS:
        raise JoulediffError(f"there is no report {form!r}", fix=f"choose one of {', '.join(REPORTS)}")
    text = REPORTS[form].to_text(diff, Layout(width, top, every))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _to_terminal(diff: Diff, layout: Layout) -> str:
    import io

    from rich.console import Console

    from joulediff.report.terminal.diff import print_diff

    file = io.StringIO()
    console = Console(file=file, width=layout.width, color_system=None, force_terminal=False, highlight=False)
    print_diff(diff, console, top=layout.top, every=layout.every)
    return file.getvalue()


def _to_json(diff: Diff, _: Layout) -> str:
    from joulediff.report.json.diff import diff_to_json

    return diff_to_json(diff)


def _to_markdown(diff: Diff, layout: Layout) -> str:
    from joulediff.report.markdown import diff_to_markdown

    return diff_to_markdown(diff, top=layout.top, every=layout.every)


REPORTS: Mapping[str, Report] = {
    "terminal": Report((".txt",), _to_terminal),
    "json": Report((".json",), _to_json),
    "markdown": Report((".md", ".markdown"), _to_markdown),
}
