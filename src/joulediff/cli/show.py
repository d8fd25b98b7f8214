"""`joulediff show`: where the energy and the time of one recorded run went."""

from __future__ import annotations

import click

from joulediff.cli.options import (
    complete_file,
    examples,
    output_options,
    scale_options,
    top_option,
)
from joulediff.model.energy import Scale
from joulediff.report.limits import TOP_ROWS


@click.command(
    "show",
    epilog=examples(
        ("joulediff show base.jd", "operators with the most energy"),
        ("joulediff show base.jd --by line --top 30", "lines with the most"),
        ("joulediff show base.jd --json run.json", "everything, as JSON"),
        ("joulediff show base.jd --times 1e6", "kWh of many steps"),
    ),
)
@click.argument("recorded", metavar="RUN.jd", shell_complete=complete_file)
@click.option(
    "--by",
    type=click.Choice(["op", "module", "line", "kernel", "region"]),
    default="op",
    show_default=True,
    help="Group operators by this.",
)
@top_option(TOP_ROWS, "Rows to show.")
@click.option("--strict", is_flag=True, help="Exit with 2 if the energy is not trustworthy.")
@scale_options
@output_options
def command(
    recorded: str,
    by: str,
    top: int,
    strict: bool,  # noqa: FBT001
    scale: Scale | None,
    json_to: str | None,
) -> int:
    """Show one recorded run: its energy, warnings, and where the energy and the time went.

    --by and --top apply to the report on the terminal; the JSON is always complete.
    """
    from joulediff.archive.reader import load_run
    from joulediff.cli.output import open_console, refuse_recording, refuse_unwritable, write_text
    from joulediff.report.terminal.run import print_run

    refuse_unwritable(json_to)
    refuse_recording(json_to, recorded)
    run = load_run(recorded)
    if json_to != "-":
        print_run(run, open_console(), by=by, top=top, path=recorded, scale=scale)  # type: ignore[arg-type]
    if json_to is not None:
        from joulediff.report.json.run import run_to_json

        write_text(run_to_json(run, scale=scale), json_to)
    if strict:
        from joulediff.energy.ledger import open_books
        from joulediff.report.views.warnings import is_trustworthy

        return 0 if is_trustworthy(run, open_books(run)) else 2
    return 0
