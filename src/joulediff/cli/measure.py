"""`joulediff measure`: the energy of one step of a program, with its confidence interval."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    ProgramCommand,
    complete_file,
    examples,
    gather,
    is_own_process,
    loop_options,
    meter_options,
    output_options,
    precision_option,
    program_arguments,
    quiet_option,
    scale_options,
    seconds_option,
    step_option,
    wait_option,
)
from joulediff.model.energy import Scale
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Measurement
from joulediff.model.options import MeasureOptions, RecordOptions

if TYPE_CHECKING:
    from joulediff.process.kept_output import KeptOutput


@click.command(
    "measure",
    cls=ProgramCommand,
    epilog=examples(
        ("joulediff measure train.py", "joules of one step"),
        ("joulediff measure train.py:tuned --precision 1%", "a narrow interval"),
        ("joulediff measure train.py --meter estimated --json -", "as JSON, no sensor"),
        ("joulediff measure train.py:main --step -- --batch 8", "main() is the step"),
    ),
)
@click.argument("program", metavar="FILE.py[:name]", shell_complete=complete_file)
@gather(
    "options",
    MeasureOptions(),
    seconds=seconds_option(MeasureOptions.seconds, "Time to measure for, at most.", "--seconds"),
    precision=precision_option(
        "Half width of the interval to reach; exit with 2 above it.  [stop at 1%, exit with 2 above 5%]"
    ),
    wait_s=wait_option(MeasureOptions.wait_s),
    label=click.option("--label", metavar="TEXT", help="Name of the program in the report.  [its file]"),
    **meter_options(),
)
@step_option(RecordOptions.is_step)
@loop_options(RecordOptions())["loop"]
@loop_options(RecordOptions())["loop_after"]
@quiet_option
@scale_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    program: str,
    options: MeasureOptions,
    is_step: bool,  # noqa: FBT001
    loop: str | None,
    loop_after: int,
    quiet: bool,  # noqa: FBT001
    scale: Scale | None,
    json_to: str | None,
) -> int:
    """Measure the energy of one step of a program.

    FILE.py defines build(), which sets up once and returns the step: a function without
    arguments. FILE.py:name and package.module:name name another builder, or with --step
    the step itself. Words after -- are the program's sys.argv.
    """
    from joulediff.cli.output import Progress, output_of_program, refuse_unwritable
    from joulediff.measuring.freed_memory import keep_freed_memory
    from joulediff.measuring.step import measure
    from joulediff.process.guarded import continue_guarded
    from joulediff.process.kept_output import KeptOutput
    from joulediff.process.request import file_of
    from joulediff.pysource.programs import Step, check_target, label_of, load_step
    from joulediff.session.loop_step import use_loop

    refuse_unwritable(json_to)
    check_target(program, RecordOptions(is_step=is_step, loop=loop))
    if is_own_process.get() and (code := continue_guarded("measuring the program")) is not None:
        return code
    keep_freed_memory()
    sys.argv[:] = [file_of(program), *program_arguments(ctx)]
    found: Measurement | None = None

    def measure_step(step: Step, *_: str) -> None:
        nonlocal found
        label = options.label or label_of(program)
        found = measure(step, **asdict(replace(options, label=label)), listener=progress)

    with ExitStack() as stack:
        kept = stack.enter_context(KeptOutput()) if quiet else None
        progress = stack.enter_context(Progress(apart=quiet))
        try:
            with output_of_program(kept, to_stderr=json_to == "-"):
                progress.stage("building the program")
                if loop is None:
                    measure_step(load_step(program, is_step=is_step))
                else:
                    use_loop(program, program_arguments(ctx), where=loop, after=loop_after, use=measure_step)
        except BaseException as error:
            progress.__exit__()
            if progress.partial is not None:
                _show(progress.partial, scale, json_to)
            _name_culprit(error, progress.failure, kept)
            raise
    assert found is not None
    _show(found, scale, json_to)
    return 0 if found.trustworthy else 2


def _name_culprit(error: BaseException, failure: tuple[BaseException, int] | None, kept: KeptOutput | None) -> None:
    """Raise an error that names the user's step if the step raised `error`; add the output that was not shown."""
    from joulediff.pysource.programs import UserCodeFailed, describe

    output = () if kept is None else kept.last_lines()
    if failure is not None and failure[0] is error and not isinstance(error, KeyboardInterrupt):
        named = UserCodeFailed(
            f"the step raised {describe(error)} in its call number {failure[1]}", fix="-vv shows the traceback"
        )
        named.output = output
        raise named from error
    if isinstance(error, JoulediffError):
        error.output = output


def _show(found: Measurement, scale: Scale | None, json_to: str | None) -> None:
    from joulediff.cli.output import open_console, write_text

    if json_to != "-":
        from joulediff.report.terminal.measurement import print_measurement

        print_measurement(found, open_console(), scale=scale)
    if json_to is not None:
        from joulediff.report.json.measurement import to_json

        write_text(to_json(found, scale=scale), json_to)
