"""The command line: one file a command, loaded when it is called, so that `--help` is instant.

Exit codes: 0 fine, 1 an error of the user or the environment, 2 measured but not trustworthy, 3 a threshold exceeded.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence

import click

from joulediff.cli.options import examples, is_own_process, is_verbose, verbose_option
from joulediff.model.errors import JoulediffError, full_disk
from joulediff.version import __version__

COMMANDS = {
    "apis": "Show the energy per library call of a script, which runs as it is.",
    "cases": "Run known cases of wasted energy, and check that they are found.",
    "diff": "Compare two programs: which one wastes energy, where, and why.",
    "doctor": "Check which meters work here, and whether the machine is quiet.",
    "match": "Show which parts of two recorded runs compute the same result.",
    "measure": "Measure the energy of one step of a program.",
    "patch": "Write the measuring of library calls into a copy of a script.",
    "record": "Record the energy, operators and kernels of a program in a file.",
    "render": "Write any report of a saved diff, without its recordings.",
    "scale": "Measure a step at several input sizes, and fit how its energy grows.",
    "show": "Show where the energy and the time of a recorded run went.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"joulediff.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0].partition(":")[0].endswith((".py", ".jd")):
            shown = "show" if args[0].endswith(".jd") else "measure"
            raise click.UsageError(f"{args[0]} is no command; to look at one file: joulediff {shown} {args[0]}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        ("joulediff diff old.py new.py", "which program wastes energy, where, and why"),
        ("joulediff measure train.py", "joules of one step"),
        ("joulediff doctor", "which meters work here"),
    ),
)
@click.version_option(__version__, "-V", "--version", message="joulediff %(version)s")
@verbose_option
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find the code that wastes energy in machine-learning programs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words  # words after it are the program's
    verbose = sum(word.count("v") for word in own if re.fullmatch("-v+", word)) + own.count("--verbose") > 1
    is_verbose.set(verbose)
    is_own_process.set(arguments is None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shows ? instead of failing
    try:
        code = cli.main(args=words, prog_name="joulediff", standalone_mode=False)
    except JoulediffError as error:
        code = _report(str(error), error.exit_code, verbose=verbose)
    except click.ClickException as error:
        code = _report(error.format_message(), 1, verbose=False)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"  {error.ctx.get_usage()}\n  `{error.ctx.command_path} --help` has more", err=True)
    except (KeyboardInterrupt, click.Abort):
        code = _report("stopped", 130, verbose=False)
    except BrokenPipeError:
        # The reader of a pipe is gone; without this, Python reports it once more at exit.
        code = _drop_output()
    except Exception as error:  # noqa: BLE001 - the top of the command line
        code = _report_other(error, verbose=verbose)
    written = _close_output()
    sys.exit(code if isinstance(code, int) and code else written)


def _report_other(error: Exception, *, verbose: bool) -> int:
    full = full_disk(error)
    if full is not None:
        return _report(str(full), full.exit_code, verbose=verbose)
    code = _report(f"a fault in joulediff itself: {type(error).__name__}: {error}", 1, verbose=verbose)
    click.echo("  please report it with the output of -vv", err=True)
    return code


def _close_output() -> int:
    """Write what is left of the report; return 1 if that fails, which Python would report as its own exit code 120."""
    try:
        if sys.stdout is not None:  # a program without a console has none
            sys.stdout.flush()
    except BrokenPipeError:
        return _drop_output()
    except OSError as error:
        _drop_output()
        why = full_disk(error) or JoulediffError(f"cannot write the report: {error.strerror}")
        return _report(str(why), why.exit_code, verbose=False)
    return 0


def _drop_output() -> int:
    """Let Python write nothing more at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def _report(message: str, code: int, *, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    click.echo(f"joulediff: {message}", err=True)
    return code
