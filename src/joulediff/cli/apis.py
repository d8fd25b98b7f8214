"""`joulediff apis`: the energy per library call of an ordinary script, which runs as it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    ProgramCommand,
    complete_file,
    every_option,
    examples,
    gather,
    json_option,
    markdown_option,
    meter_options,
    program_arguments,
    quiet_option,
    top_option,
    verbose_option,
    wait_option,
)
from joulediff.model.options import ApisOptions
from joulediff.report.limits import TOP_ROWS

if TYPE_CHECKING:
    from joulediff.cli.output import ReportFiles
    from joulediff.model.apis.api_run import ApiRun


@click.command(
    "apis",
    cls=ProgramCommand,
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        ("joulediff apis train.py --epochs 2", "unknown options are its own"),
        ("joulediff apis train.py -o new.jd -- -o out", "all words after -- are"),
        ("joulediff apis train.py --markdown a.md", "its source with joules"),
        ("joulediff apis train.py --isolated", "short calls, from rest to rest"),
    ),
)
@click.argument("script", metavar="SCRIPT", shell_complete=complete_file)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]")
@click.option("--module", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Library whose calls are measured; may be repeated.  [those that the script imports]",
)
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Also measure the calls in these modules of yours: a name or a path, with *.",
)
@click.option("--label", metavar="TEXT", help="Name of the program in reports.  [its file]")
@click.option("--python", metavar="PATH", help="Python of the environment to run the script in.  [this one]")
@gather(
    "options",
    ApisOptions(),
    synchronise=click.option(
        "--sync/--no-sync",
        "synchronise",
        default=ApisOptions.synchronise,
        help="Wait for devices at the begin and the end of each call.  [yes]",
    ),
    isolated=click.option(
        "--isolated",
        type=click.IntRange(min=0),
        is_flag=False,
        flag_value=1,
        default=ApisOptions.isolated,
        metavar="N",
        help="Measure the first N calls of each site alone, from rest to rest; slow.  [1 if N is left out]",
    ),
    wait_s=wait_option(ApisOptions.wait_s),
    source=click.option(
        "--source/--no-source", "source", default=ApisOptions.source, help="Store the source of the script.  [yes]"
    ),
    **meter_options(),
)
@quiet_option
@top_option(TOP_ROWS, "APIs and lines to show.")
@every_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write the run (.jd) or a report (.md, .json or .txt).",
)
@json_option
@markdown_option
@verbose_option
@click.pass_context
def command(
    ctx: click.Context,
    script: str,
    words: tuple[str, ...],
    is_module: bool,  # noqa: FBT001
    libraries: tuple[str, ...],
    include: tuple[str, ...],
    label: str | None,
    python: str | None,
    options: ApisOptions,
    quiet: bool,  # noqa: FBT001
    top: int,
    every: bool,  # noqa: FBT001
    output: str | None,
    json_to: str | None,
    markdown_to: str | None,
) -> int:
    """Run a script, and show which library calls and lines used how much energy.

    The script (.py or .ipynb) runs as under python, from its first line to its end, with its calls rewritten in
    memory. Options that are not listed here are its own, and so are all words after --.
    """
    from joulediff.cli.output import ReportFiles, StageLines, form_of, open_console, refuse_output, stdout_kept_clean
    from joulediff.process.interpreter import find_interpreter
    from joulediff.process.scripts.parent import run_script
    from joulediff.process.scripts.request import ScriptRequest
    from joulediff.pysource.scripts import check_script
    from joulediff.report.terminal.apis import print_api_run

    if not is_module:
        check_script(script, parses=python is None)
    files = ReportFiles({"-o": None if _is_archive(output) else output, "--json": json_to, "--markdown": markdown_to})
    files.refuse()
    if output is not None and _is_archive(output):
        refuse_output(output, script)
    elif output not in (None, "-"):
        form_of(output)
    request = ScriptRequest(
        script=script,
        label=label or (script if is_module else Path(script).stem),
        options=options,
        arguments=(*words, *program_arguments(ctx)),
        libraries=libraries,
        include=include,
        is_module=is_module,
        quiet=quiet,
    )
    with stdout_kept_clean(files.takes_stdout):
        run = run_script(request, interpreter=find_interpreter(python), listener=StageLines())
    if not files.takes_stdout:
        print_api_run(run, open_console(), top=top, every=every)
    _write(run, files, output, top=top, every=every)
    if run.ending in ("exception", "killed", "stopped") or run.exit_code:
        return run.exit_code if run.ending == "stopped" else 1
    return 0 if run.trustworthy else 2


def _is_archive(output: str | None) -> bool:
    return output is not None and Path(output).suffix == ".jd"


def _write(run: ApiRun, files: ReportFiles, output: str | None, *, top: int, every: bool) -> None:
    from joulediff.cli.output import form_of, write_text
    from joulediff.report.render import render

    if output is not None and _is_archive(output):
        from joulediff.archive.writer import save

        save(run, output)
        click.echo(f"next: joulediff show {shlex.quote(output)}", err=True)
    place = files.files["-o"]
    forms = {"--json": "json", "--markdown": "markdown", "-o": "terminal" if place == "-" else form_of(place)}
    for option, form in forms.items():
        target = files.files[option]
        if target is not None:
            write_text(render(run, form, top=top, every=every), target)
