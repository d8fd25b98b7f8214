"""`joulediff cases`: a library of known cases of wasted energy, and whether a diff finds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulediff.cli.cases_run import run_command
from joulediff.cli.options import output_options

if TYPE_CHECKING:
    from joulediff.cases.case import Case


@click.group("cases", invoke_without_command=True, no_args_is_help=False)
@click.option(
    "--library", envvar="JOULEDIFF_CASES", metavar="FOLDER", help="A library of your own.  [the built-in one]"
)
@click.option("-v", "--verbose", count=True, expose_value=False, help="-vv shows tracebacks.")
@click.pass_context
def command(ctx: click.Context, library: str | None) -> None:
    """List and run known cases of wasted energy, two programs each."""
    ctx.obj = None if library is None else Path(library)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("list")
@output_options
@click.pass_obj
def list_command(library: Path | None, json_to: str | None) -> int:
    """Show every case, and whether it can run here."""
    from joulediff.cases.catalogue import catalogue_to_json, print_catalogue
    from joulediff.cases.library import find_cases
    from joulediff.cli.output import open_console, refuse_unwritable, write_text

    refuse_unwritable(json_to)
    cases = find_cases(library)
    lacking = _lacking(cases)
    if json_to != "-":
        print_catalogue(cases, lacking, open_console())
    if json_to is not None:
        write_text(catalogue_to_json(cases, lacking), json_to)
    return 0


@command.command("show")
@click.argument("name", metavar="ID")
@click.option("--programs", is_flag=True, help="Show the two programs as well.")
@click.option("-v", "--verbose", count=True, expose_value=False, help="-vv shows tracebacks.")
@click.pass_obj
def show_command(library: Path | None, name: str, programs: bool) -> int:  # noqa: FBT001
    """Show one case in full."""
    from joulediff.cases.catalogue import print_case
    from joulediff.cases.library import find_case
    from joulediff.cli.output import open_console

    case = find_case(name, library)
    print_case(case, _lacking([case])[case.id], open_console(), programs=programs, library=library)
    return 0


@command.command("judge")
@click.argument("folder", metavar="FOLDER")
@click.option("--markdown", "markdown_to", metavar="FILE", help="Write Markdown to FILE; - is standard output.")
@output_options
@click.pass_obj
def judge_command(library: Path | None, folder: str, json_to: str | None, markdown_to: str | None) -> int:
    """Judge the results of `joulediff cases run --keep FOLDER` again, without a device.

    Exit code 0: every case that ran is found, or fixed upstream; 3: one is not.
    """
    from joulediff.cases.library import find_cases
    from joulediff.cases.results import judge_kept
    from joulediff.cases.table import all_good
    from joulediff.cli.cases_run import NOT_FOUND, write_reports
    from joulediff.cli.output import ReportFiles

    files = ReportFiles({"--json": json_to, "--markdown": markdown_to})
    files.refuse()
    judgements = judge_kept(Path(folder), find_cases(library))
    write_reports(files, judgements)
    return 0 if all_good(judgements) else NOT_FOUND


command.add_command(run_command)


def _lacking(cases: list[Case] | tuple[Case, ...]) -> dict[str, str | None]:
    from joulediff.cases.library import choose_device, has_nvidia, lacks

    has_gpu = has_nvidia()
    return {case.id: lacks(case, choose_device(case, has_gpu=has_gpu)) for case in cases}
