"""`joulediff doctor`: check the meters of this machine, and whether it is quiet."""

from __future__ import annotations

import click

from joulediff.cli.options import (
    examples,
    gather,
    meter_options,
    output_options,
    wait_option,
)
from joulediff.model.options import DOCTOR_OPTIONS, MeasureOptions


@click.command(
    "doctor",
    epilog=examples(
        ("joulediff doctor", "every meter of this machine"),
        ("joulediff doctor --meter nvml --wait 10", "one meter, wait for quiet"),
    ),
)
@gather("options", DOCTOR_OPTIONS, wait_s=wait_option(DOCTOR_OPTIONS.wait_s), **meter_options())
@output_options
def command(options: MeasureOptions, json_to: str | None) -> int:
    """Check every meter of this machine, and whether the machine is quiet.

    Exit code 0: energy can be measured and the machine is quiet; 2: it can only be estimated, or the machine is not
    quiet; 1: nothing can be measured.
    """
    from joulediff.cli.output import Progress, open_console, refuse_unwritable, write_text
    from joulediff.measuring.doctor import check_machine

    refuse_unwritable(json_to)
    with Progress() as progress:
        found = check_machine(
            meter=options.meter,
            wait_s=options.wait_s,
            cpu_watts=options.cpu_watts,
            clock_offset_s=options.clock_offset_s,
            listener=progress,
        )
    if json_to != "-":
        from joulediff.report.terminal.doctor import print_checkup

        print_checkup(found, open_console())
    if json_to is not None:
        from joulediff.report.json.measurement import to_json

        write_text(to_json(found), json_to)
    return found.exit_code
