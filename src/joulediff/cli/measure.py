"""`joulediff measure`: joules per step of a program, with an interval."""

from __future__ import annotations

import click

from joulediff.cli.options import meter_options, output_options, read_share
from joulediff.model.measurement import Measurement


@click.command("measure")
@click.argument("program", metavar="FILE.py[:name]")
@click.option("--seconds", default=4.0, show_default=True, metavar="S", help="Time to measure for, at most.")
@click.option("--precision", type=read_share, metavar="P", help="Half width of the interval to reach.  [1% aimed at]")
@click.option("--wait", "wait_s", default=30.0, show_default=True, metavar="S", help="Longest wait for quiet.")
@click.option("--label", metavar="TEXT", help="Name of the program in the report.  [its file]")
@meter_options
@output_options
def command(
    program: str,
    seconds: float,
    precision: float | None,
    wait_s: float,
    label: str | None,
    clock_offset: float,
    meter: str,
    cpu_watts: float | None,
    json_to: str | None,
) -> int:
    """Measure the energy of one step of a program.

    FILE.py defines build(), which sets up once and returns the step: a function without
    arguments. FILE.py:name and package.module:name name another builder.
    """
    from joulediff.cli.output import Progress, refuse_unwritable, stdout_kept_clean
    from joulediff.measuring.step import measure
    from joulediff.pysource.programs import label_of, load_step

    refuse_unwritable(json_to)
    with Progress() as progress:
        try:
            with stdout_kept_clean(json_to == "-"):
                progress.stage("building the program")
                step = load_step(program)
                found = measure(
                    step,
                    label=label or label_of(program),
                    seconds=seconds,
                    meter=meter,
                    precision=precision,
                    wait_s=wait_s,
                    cpu_watts=cpu_watts,
                    clock_offset_s=clock_offset,
                    listener=progress,
                )
        except BaseException as error:
            progress.__exit__()
            if progress.partial is not None:
                _show(progress.partial, json_to)
            _name_culprit(error, progress.failure)
            raise
    _show(found, json_to)
    return 0 if found.trustworthy else 2


def _name_culprit(error: BaseException, failure: tuple[BaseException, int] | None) -> None:
    """Raise a sentence about the user's step where it was the step that raised `error`."""
    from joulediff.pysource.programs import UserCodeFailed, describe

    if failure is not None and failure[0] is error and not isinstance(error, KeyboardInterrupt):
        raise UserCodeFailed(f"the step raised {describe(error)} in its call number {failure[1]}") from error


def _show(found: Measurement, json_to: str | None) -> None:
    from joulediff.cli.output import open_console, write_json

    if json_to != "-":
        from joulediff.report.terminal.measurement import print_measurement

        print_measurement(found, open_console())
    if json_to is not None:
        write_json(found, json_to)
