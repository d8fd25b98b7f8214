"""`joulediff render`: write any report of a saved result, on any machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    complete_file,
    every_option,
    examples,
    report_option,
    top_option,
    verbose_option,
)
from joulediff.model.errors import JoulediffError
from joulediff.report.limits import TOP_FINDINGS
from joulediff.report.render import REPORTS, render

if TYPE_CHECKING:
    from joulediff.model.apis.api_diff import ApiDiff
    from joulediff.model.apis.api_run import ApiRun
    from joulediff.model.diff import Diff


@click.command(
    "render",
    epilog=examples(
        ("joulediff render diff.json", "on the terminal"),
        ("joulediff render diff.json -o report.md --all", "as Markdown, in full"),
        ("joulediff render - --format json", "from standard input"),
    ),
)
@click.argument("saved", metavar="DIFF.json", shell_complete=complete_file)
@report_option
@click.option(
    "--format",
    "form",
    type=click.Choice(list(REPORTS)),
    help="Format of the report.  [by the suffix of FILE; terminal without FILE]",
)
@top_option(TOP_FINDINGS, "Findings to show.")
@every_option
@verbose_option
def command(saved: str, output: str | None, form: str | None, top: int, every: bool) -> int:  # noqa: FBT001
    """Show a diff that was saved as JSON, or write it as another report. - is standard input or output.

    The JSON of `joulediff apis` is read too.
    """
    from joulediff.cli.output import form_of

    place = None if output == "-" else output
    form = form or form_of(place)
    if place is not None:
        _refuse(place, saved)
    result = read_result(saved)
    if place is None and form == "terminal":
        from joulediff.cli.output import open_console
        from joulediff.report.show import print_result

        print_result(result, open_console(), top=top, every=every)
        return 0
    _write(render(result, form, top=top, every=every), place)
    return 0


def read_result(saved: str) -> Diff | ApiDiff | ApiRun:
    """Return the result in a JSON file, or on standard input for `-`."""
    from joulediff.archive.container import BEGIN
    from joulediff.report.json.saved import MAX_BYTES, result_from_json

    try:
        if saved == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(saved).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise JoulediffError(
            f"cannot read {saved} ({why})", fix="name a JSON file that `joulediff diff` wrote"
        ) from error
    if data.startswith(BEGIN):
        raise JoulediffError(f"cannot read {saved} (it is a recording, no diff)", fix=f"joulediff show {saved}")
    try:
        return result_from_json(data)
    except JoulediffError as error:
        raise JoulediffError(f"cannot read {saved}: {error.what}", fix=error.fix) from error


def _refuse(place: str, saved: str) -> None:
    """Raise if the file cannot be written, or is the diff itself or a recording."""
    from joulediff.cli.output import refuse_recording, refuse_unwritable

    if saved != "-" and Path(place).exists() and Path(saved).exists() and Path(place).samefile(saved):
        raise _unwritable(f"cannot write {place} (it is the diff to render)")
    try:
        refuse_unwritable(place)
        refuse_recording(place)
    except JoulediffError as error:
        raise _unwritable(error.what) from error


def _write(text: str, place: str | None) -> None:
    from joulediff.cli.output import write_text

    try:
        write_text(text, "-" if place is None else place)
    except JoulediffError as error:
        raise _unwritable(error.what) from error


def _unwritable(what: str) -> JoulediffError:
    return JoulediffError(what, fix="choose another file for -o")
