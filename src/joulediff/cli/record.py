"""`joulediff record`: record the energy, operators and kernels of a program in one file."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    ProgramCommand,
    complete_file,
    examples,
    gather,
    loop_options,
    meter_options,
    program_arguments,
    quiet_option,
    seconds_option,
    step_option,
    wait_option,
)
from joulediff.model.options import RecordOptions

if TYPE_CHECKING:
    from joulediff.archive.snapshot import Snapshot
    from joulediff.model.run import Run


@click.command(
    "record",
    cls=ProgramCommand,
    epilog=examples(
        ("joulediff record train.py -o base.jd", "one file with all that was measured"),
        ("joulediff record train.py --no-replay", "faster, joules split by time"),
        ("joulediff record train.py -- --batch 8", "with arguments of the program"),
        ("joulediff record script.py --loop", "a script whose loop is the step"),
    ),
)
@click.argument("program", metavar="FILE.py[:name]", shell_complete=complete_file)
@click.option(
    "-o", "--output", metavar="RUN.jd", shell_complete=complete_file, help="File to write.  [LABEL.jd in this folder]"
)
@click.option("--label", metavar="TEXT", help="Name of the program in reports.  [its file]")
@click.option("--python", metavar="PATH", help="Python of the environment to run the program in.  [this one]")
@click.option("--no-replay", is_flag=True, help="Do not replay each operator alone to measure its energy.")
@click.option("--no-source", is_flag=True, help="Store no source code in the file.")
@quiet_option
@click.option("--strict", is_flag=True, help="Also exit with 2 if much of the energy is unexplained.")
@gather(
    "options",
    RecordOptions(),
    seconds=seconds_option(
        RecordOptions.seconds, "Time to measure for, at most.", "--step-seconds", "--seconds", "seconds"
    ),
    wait_s=wait_option(RecordOptions.wait_s),
    is_step=step_option(RecordOptions.is_step),
    **loop_options(RecordOptions()),
    replay_seconds=seconds_option(
        RecordOptions.replay_seconds, "Time to replay operators for, at most.", "--replay-seconds"
    ),
    cpp=click.option(
        "--cpp",
        is_flag=True,
        default=RecordOptions.cpp,
        help="Record the C++ frames of every operator; recording is slower.",
    ),
    **meter_options(),
)
@click.option("-v", "--verbose", count=True, help="-vv shows tracebacks.")
@click.pass_context
def command(
    ctx: click.Context,
    program: str,
    output: str | None,
    label: str | None,
    python: str | None,
    options: RecordOptions,
    no_replay: bool,  # noqa: FBT001
    no_source: bool,  # noqa: FBT001
    quiet: bool,  # noqa: FBT001
    strict: bool,  # noqa: FBT001
    verbose: int,
) -> int:
    """Record a program in a separate process, and write the run to a file.

    FILE.py defines build(), which sets up once and returns the step: a function without
    arguments. FILE.py:name and package.module:name name another builder, or with --step
    the step itself. With --loop FILE.py is any script, and the body of its loop is the step.
    Words after -- are the program's sys.argv.
    """
    from joulediff.cli.output import StageLines, name_file, refuse_output
    from joulediff.model.errors import JoulediffError
    from joulediff.process.exit_reasons import ProgramRaised
    from joulediff.process.interpreter import find_interpreter
    from joulediff.process.process import record_in_process
    from joulediff.process.request import Request, file_of
    from joulediff.pysource.programs import check_target, label_of

    check_target(program, options)
    label = label or label_of(program)
    options = replace(options, label=label, source=not no_source, replay=not no_replay)
    options.check_replay()
    file = _File(output or name_file(label))
    refuse_output(file.shown, file_of(program))
    request = Request(program, options, program_arguments(ctx), quiet=quiet)
    interpreter = find_interpreter(python)
    try:
        run = record_in_process(request, interpreter=interpreter, keep=file.keep, listener=StageLines())
    except JoulediffError as error:
        hint = "-vv shows the traceback" if isinstance(error, ProgramRaised) and verbose < 2 else None
        error.fix = "\n  ".join(filter(None, [error.fix, hint, file.kept_text()]))
        raise
    return _summarise(run, file, strict=strict)


@dataclass(slots=True)
class _File:
    """The file of the run, and the run that it holds so far."""

    shown: str
    kept: Snapshot | None = None

    def keep(self, recording: Snapshot) -> None:
        from joulediff.archive.writer import save

        save(recording, self.shown)
        self.kept = recording

    def kept_text(self) -> str:
        if self.kept is None:
            old = f"; {self.shown} is unchanged" if Path(self.shown).exists() else ""
            return f"nothing was recorded{old}"
        passes = self.kept.passes
        finished = [str(each.name) for each in passes if each.status == "done"]
        finished += [f"part of {each.name}" for each in passes if each.status == "partial"]
        return f"{self.shown} holds the recording so far ({', '.join(finished)}): {self.show}"

    @property
    def show(self) -> str:
        """The command that shows it."""
        return f"joulediff show {shlex.quote(self.shown)}"


def _summarise(run: Run, file: _File, *, strict: bool) -> int:
    """Print a run in a few lines and return the exit code."""
    from joulediff.cli.output import open_console
    from joulediff.energy.ledger import open_books
    from joulediff.report.terminal.run import print_summary
    from joulediff.report.views.warnings import is_trustworthy

    found, books = run.measurement, open_books(run)
    print_summary(run, books, open_console(), path=file.shown, size_bytes=Path(file.shown).stat().st_size)
    click.echo(f"next: {file.show}")
    failed = [each for each in run.passes if each.status == "failed"]
    for each in failed:
        click.echo(f"joulediff: the {each.name} pass failed: {each.note or 'the reason is unknown'}", err=True)
    if failed:
        return 1
    is_good = found is None or (found.trustworthy and not books.exceeds_meter)
    return 0 if is_good and (not strict or is_trustworthy(run, books)) else 2
