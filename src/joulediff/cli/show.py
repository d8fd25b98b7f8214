"""`joulediff show`: where the energy and the time of one recording went."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    complete_file,
    examples,
    markdown_option,
    output_options,
    scale_options,
    top_option,
)
from joulediff.model.energy import Scale
from joulediff.report.limits import TOP_ROWS

if TYPE_CHECKING:
    from joulediff.cli.output import ReportFiles
    from joulediff.model.apis.api_run import ApiRun
    from joulediff.model.run import Run
    from joulediff.report.views.run.rows import By

_BY_DEFAULT = "op"


@click.command(
    "show",
    epilog=examples(
        ("joulediff show base.jd", "operators with the most energy"),
        ("joulediff show base.jd --by line --top 30", "lines with the most"),
        ("joulediff show train.jd --markdown train.md", "source with joules"),
        ("joulediff show base.jd --times 1e6", "kWh of many steps"),
    ),
)
@click.argument("recorded", metavar="RUN.jd", shell_complete=complete_file)
@click.option(
    "--by",
    type=click.Choice(["op", "module", "line", "kernel", "region"]),
    default=_BY_DEFAULT,
    show_default=True,
    help="Group operators by this.",
)
@top_option(TOP_ROWS, "Rows to show.")
@click.option("--all", "every", is_flag=True, help="Show every row.")
@click.option("--strict", is_flag=True, help="Exit with 2 if the energy is not trustworthy.")
@markdown_option
@scale_options
@output_options
def command(
    recorded: str,
    by: By,
    top: int,
    every: bool,  # noqa: FBT001
    strict: bool,  # noqa: FBT001
    scale: Scale | None,
    markdown_to: str | None,
    json_to: str | None,
) -> int:
    """Show one recording: its energy, warnings, and where the energy and the time went.

    It is the recorded step of a program, or a script whose API calls were measured. --by and --top apply to the report
    on the terminal; the JSON is always complete.
    """
    from joulediff.archive.reader import load
    from joulediff.cli.output import ReportFiles, refuse_recording
    from joulediff.model.apis.api_run import ApiRun

    files = ReportFiles({"--json": json_to, "--markdown": markdown_to})
    for option, place in files.files.items():
        refuse_recording(place, recorded, option=option)
    files.refuse()
    run = load(recorded)
    if isinstance(run, ApiRun):
        _refuse_step_options(recorded, by, scale)
        is_sound = _show_calls(run, files, recorded, top=top, every=every)
    else:
        is_sound = _show_step(run, files, recorded, by=by, top=sys.maxsize if every else top, scale=scale)
    return 2 if strict and not is_sound else 0


def _show_calls(run: ApiRun, files: ReportFiles, recorded: str, *, top: int, every: bool) -> bool:
    """Show the API calls of a script, and return whether their energy is trustworthy."""
    from joulediff.cli.output import open_console
    from joulediff.report.render import render
    from joulediff.report.terminal.apis import print_api_run

    if not files.takes_stdout:
        print_api_run(run, open_console(), top=top, every=every, path=recorded)
    _write(files, json=lambda: render(run, "json"), markdown=lambda: render(run, "markdown", top=top, every=every))
    return run.trustworthy


def _show_step(run: Run, files: ReportFiles, recorded: str, *, by: By, top: int, scale: Scale | None) -> bool:
    """Show the step of a program, and return whether its energy is trustworthy."""
    from joulediff.cli.output import open_console
    from joulediff.energy.ledger import open_books
    from joulediff.report.json.run import run_to_json
    from joulediff.report.run_markdown import run_to_markdown
    from joulediff.report.terminal.run import print_run
    from joulediff.report.views.warnings import is_trustworthy

    if not files.takes_stdout:
        print_run(run, open_console(), by=by, top=top, path=recorded, scale=scale)
    _write(files, json=lambda: run_to_json(run, scale=scale), markdown=lambda: run_to_markdown(run, top=top))
    return is_trustworthy(run, open_books(run))


def _write(files: ReportFiles, **reports: Callable[[], str]) -> None:
    from joulediff.cli.output import write_text

    for name, report in reports.items():
        place = files.files[f"--{name}"]
        if place is not None:
            write_text(report(), place)


def _refuse_step_options(recorded: str, by: By, scale: Scale | None) -> None:
    from joulediff.model.errors import JoulediffError

    given = [*(["--by"] if by != _BY_DEFAULT else []), *(["--times"] if scale is not None else [])]
    if given:
        raise JoulediffError(
            f"{' and '.join(given)} cannot be used for {recorded} (it has the API calls of a script, and no step)",
            fix=f"joulediff show {recorded}",
        )
