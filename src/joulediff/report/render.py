"""The reports of a result: one entry for each format of a diff. A format is imported when a report is written in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from joulediff.model.apis.api_diff import ApiDiff
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.apis.scaling import Scaling
from joulediff.model.diff import Diff
from joulediff.model.display import record_of
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement, Checkup, Measurement
from joulediff.model.run import Run
from joulediff.report.limits import TOP_FINDINGS, TOP_ROWS, WIDTH


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
    result: object,
    form: str | None = None,
    path: str | Path | None = None,
    *,
    width: int = WIDTH,
    top: int | None = None,
    every: bool = False,
) -> str:
    """Return a result as text without colours, and write it to `path` if one is given.

    `form` is `terminal`, `json` or `markdown`; without it the suffix of `path` chooses, else it is `terminal`. `width`
    applies to the terminal report; the JSON is always complete. There is no Markdown of a
    measurement.
    """
    form = form or form_of(None if path is None else str(path))
    if form not in REPORTS:
        raise JoulediffError(f"there is no report {form!r}", fix=f"choose one of {', '.join(REPORTS)}")
    record = record_of(result)
    if isinstance(record, Diff):
        text = REPORTS[form].to_text(record, Layout(width, TOP_FINDINGS if top is None else top, every))
    else:
        text = _render_other(record, form, width, top, every=every)
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise JoulediffError(f"cannot write {path} ({error.strerror})", fix="give another path") from error
    return text


def form_of(place: str | None) -> str:
    """Return the report that the suffix of a file chooses; the terminal's without a file."""
    if place is None:
        return "terminal"
    suffix = Path(place).suffix.lower()
    form = next((name for name, report in REPORTS.items() if suffix in report.suffixes), None)
    if form is None:
        raise JoulediffError(f"the suffix of {place} names no report", fix="use .txt, .json or .md")
    return form


def _render_other(record: object, form: str, width: int, top: int | None, *, every: bool) -> str:
    """Return the report of a record that is no diff."""
    if form == "json" and isinstance(record, Run):
        from joulediff.report.json.run import run_to_json

        return run_to_json(record)
    if form == "markdown" and isinstance(record, ApiDiff):
        from joulediff.report.apis_diff_markdown import api_diff_to_markdown

        return api_diff_to_markdown(record, top=TOP_FINDINGS if top is None else top, every=every)
    if form == "json" and isinstance(record, ApiDiff):
        from joulediff.report.json.apis_diff import api_diff_to_json

        return api_diff_to_json(record)
    if form == "markdown" and isinstance(record, ApiRun):
        from joulediff.report.apis_markdown import api_run_to_markdown

        return api_run_to_markdown(record, top=TOP_ROWS if top is None else top, every=every)
    if form == "json" and isinstance(record, ApiRun):
        from joulediff.report.json.apis import api_run_to_json

        return api_run_to_json(record)
    if form == "json" and isinstance(record, Measurement | BlockMeasurement | Checkup):
        from joulediff.report.json.measurement import to_json

        return to_json(record)
    if form == "json" and isinstance(record, Scaling):
        from joulediff.report.json.scaling import scaling_to_json

        return scaling_to_json(record)
    if form == "markdown" and isinstance(record, Scaling):
        from joulediff.report.scaling_markdown import scaling_to_markdown

        return scaling_to_markdown(record)
    if form == "markdown" and isinstance(record, Run):
        from joulediff.report.run_markdown import run_to_markdown

        return run_to_markdown(record, top=TOP_ROWS if top is None else top)
    if form == "markdown" and isinstance(record, Measurement | BlockMeasurement | Checkup):
        raise JoulediffError(
            f"there is no Markdown of a {type(record).__name__}", fix="choose 'terminal' or 'json', or render a Diff"
        )
    return _print(record, width, top=top, every=every)


def _to_terminal(diff: Diff, layout: Layout) -> str:
    return _print(diff, layout.width, top=layout.top, every=layout.every)


def _print(record: object, width: int, *, top: int | None = None, every: bool = False) -> str:
    import io

    from rich.console import Console

    from joulediff.report.show import print_result

    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False, highlight=False)
    print_result(record, console, top=top, every=every)
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
