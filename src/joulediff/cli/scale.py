"""`joulediff scale`: how the energy, the time and the power of a step grow with the size of its input."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    ProgramCommand,
    complete_file,
    examples,
    gather,
    is_own_process,
    meter_options,
    output_options,
    precision_option,
    program_arguments,
    quiet_option,
    report_option,
    seconds_option,
    step_option,
    wait_option,
)
from joulediff.model.errors import JoulediffError
from joulediff.model.options import ScaleOptions

if TYPE_CHECKING:
    from joulediff.measuring.scaling.series import Series


@click.command(
    "scale",
    cls=ProgramCommand,
    epilog=examples(
        ("joulediff scale train.py --sizes 1e3..1e6", "build(size) at 7 sizes"),
        ("joulediff scale a.py:sort --sizes 100,200,400 --step", "sort(size) is the step"),
        ("joulediff scale a.py --sizes 64..2048/6 -o growth.md", "6 sizes, as Markdown"),
    ),
)
@click.argument("program", metavar="FILE.py[:name]", shell_complete=complete_file)
@click.option(
    "--sizes",
    required=True,
    metavar="SIZES",
    help="1e3..1e6 in equal ratios, 1e3..1e6/10 with the number of sizes, or a list: 100,200,400.",
)
@gather(
    "options",
    ScaleOptions(),
    points=click.option(
        "--points", type=int, default=ScaleOptions.points, show_default=True, metavar="N", help="Sizes of a range."
    ),
    seconds=seconds_option(ScaleOptions.seconds, "Time to measure each size for, at most.", "--seconds"),
    precision=precision_option("Half width of the interval of each size to reach."),
    wait_s=wait_option(ScaleOptions.wait_s),
    label=click.option("--label", metavar="TEXT", help="Name of the program in the report.  [its file]"),
    is_step=step_option(ScaleOptions.is_step),
    **meter_options(),
)
@quiet_option
@report_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    program: str,
    sizes: str,
    options: ScaleOptions,
    quiet: bool,  # noqa: FBT001
    output: str | None,
    json_to: str | None,
) -> int:
    """Measure a step at several input sizes, and fit how its costs grow.

    FILE.py defines build(size), which sets up once for that size and returns the step: a
    function without arguments. FILE.py:name and package.module:name name another builder;
    with --step a call of it with the size is the step. Words after -- are the program's.
    """
    from joulediff.cli.output import Progress, ReportFiles, form_of, output_of_program
    from joulediff.measuring.freed_memory import keep_freed_memory
    from joulediff.measuring.scaling.series import Series, open_series_meters
    from joulediff.measuring.scaling.sizes import parse_sizes
    from joulediff.process.guarded import continue_guarded
    from joulediff.process.kept_output import KeptOutput
    from joulediff.process.request import file_of
    from joulediff.pysource.programs import label_of, load_sized

    chosen = parse_sizes(sizes, points=options.points)
    form_of(output)
    files = ReportFiles({"-o": output, "--json": json_to})
    files.refuse()
    if is_own_process.get() and (code := continue_guarded("measuring the program")) is not None:
        return code
    keep_freed_memory()
    sys.argv[:] = [file_of(program), *program_arguments(ctx)]
    series: Series | None = None
    with ExitStack() as stack:
        kept = stack.enter_context(KeptOutput()) if quiet else None
        progress = stack.enter_context(Progress(apart=quiet))
        try:
            with output_of_program(kept, to_stderr=files.takes_stdout):
                progress.stage("loading the program")
                build = load_sized(program, is_step=options.is_step)
                series = running = Series(build, label=options.label or label_of(program), listener=progress)
                with open_series_meters(
                    seconds=options.seconds,
                    meter=options.meter,
                    precision=options.precision,
                    wait_s=options.wait_s,
                    cpu_watts=options.cpu_watts,
                    clock_offset_s=options.clock_offset_s,
                ) as measure_step:
                    # A system without memory left kills this process: the files then have the sizes until then.
                    running.run(chosen, measure_step, after_size=lambda: _write(running, output, json_to, so_far=True))
        except BaseException as error:
            progress.__exit__()
            if series is not None and series.has_points:
                _show(series, output, json_to)
            if isinstance(error, JoulediffError) and kept is not None:
                error.output = kept.last_lines()
            raise
    _show(series, output, json_to)
    return 0 if series.result().trustworthy else 2


def _show(series: Series, output: str | None, json_to: str | None) -> None:
    from joulediff.cli.output import open_console

    if "-" not in (output, json_to):
        from joulediff.report.terminal.scaling import print_scaling

        print_scaling(series.result(), open_console())
    _write(series, output, json_to)


def _write(series: Series, output: str | None, json_to: str | None, *, so_far: bool = False) -> None:
    """Write the files; while the series goes on, nothing to standard output."""
    from joulediff.cli.output import form_of, write_text
    from joulediff.report.render import render

    for place, form in ((output, form_of(output)), (json_to, "json")):
        if place is not None and not (so_far and place == "-"):
            write_text(render(series.result(), form), place)
