"""`joulediff match`: the parts of two recorded runs that compute the same result."""

from __future__ import annotations

import click

from joulediff.cli.options import (
    complete_file,
    examples,
    output_options,
    tolerance_option,
    top_option,
)
from joulediff.report.limits import TOP_REGIONS


@click.command(
    "match",
    epilog=examples(
        ("joulediff match base.jd new.jd", "parts with equal results"),
        ("joulediff match base.jd new.jd --top 50", "more rows"),
    ),
)
@click.argument("first", metavar="A.jd", shell_complete=complete_file)
@click.argument("second", metavar="B.jd", shell_complete=complete_file)
@top_option(TOP_REGIONS, "Rows to show.")
@tolerance_option("Largest relative difference of equal tensors, beside rounding.")
@output_options
def command(first: str, second: str, top: int, tolerance: float, json_to: str | None) -> int:
    """Show the parts of two recorded runs that compute the same result, and where the runs differ.

    Parts are matched by the values of their tensors, never by names.
    """
    from joulediff.archive.reader import load_run
    from joulediff.cli.output import open_console, refuse_recording, refuse_unwritable, show_matching, write_text
    from joulediff.matching.match_runs import match_runs
    from joulediff.report.terminal.match import print_match
    from joulediff.report.views.match_rows import report_match

    refuse_unwritable(json_to)
    refuse_recording(json_to, first, second)
    a, b = load_run(first), load_run(second)
    with show_matching(a, b) as listener:
        match = match_runs(a, b, tolerance=tolerance, listener=listener)
    report = report_match(a, b, match)
    if json_to != "-":
        print_match(report, open_console(), top=top)
    if json_to is not None:
        from joulediff.report.json.match import match_to_json

        write_text(match_to_json(report), json_to)
    return 0
