"""`joulediff doctor`: which meters are here, how good they are, and is the machine quiet."""

from __future__ import annotations

import click

from joulediff.cli.options import meter_options, output_options


@click.command("doctor")
@click.option("--wait", "wait_s", default=3.0, show_default=True, metavar="S", help="Longest wait for quiet.")
@meter_options
@output_options
def command(wait_s: float, meter: str, cpu_watts: float | None, clock_offset: float, json_to: str | None) -> int:
    """Look at every meter of this machine and at its quietness.

    Exit code 0: measures and is quiet; 2: only estimates, or not quiet; 1: nothing can be measured.
    """
    from joulediff.cli.output import Progress, open_console, refuse_unwritable, write_json
    from joulediff.measuring.doctor import check_machine

    refuse_unwritable(json_to)
    with Progress() as progress:
        found = check_machine(
            meter=meter, wait_s=wait_s, cpu_watts=cpu_watts, clock_offset_s=clock_offset, listener=progress
        )
    if json_to != "-":
        from joulediff.report.terminal.doctor import print_checkup

        print_checkup(found, open_console())
    if json_to is not None:
        write_json(found, json_to)
    return found.exit_code
