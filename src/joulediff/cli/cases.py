"""`joulediff cases`: a library of known cases of wasted energy, and whether a diff finds them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import (
    examples,
    is_verbose,
    json_option,
    markdown_option,
    output_options,
    recording_options,
    verbose_option,
)
from joulediff.model.options import CASE_OPTIONS, RecordOptions

if TYPE_CHECKING:
    from joulediff.cases.case import Case, DeviceName
    from joulediff.cases.judge import Judgement
    from joulediff.cases.results import ResultsFolder
    from joulediff.cases.run import Job, JobOptions, JobResult, Size
    from joulediff.cli.output import ReportFiles, StageLines

NOT_FOUND = 3
LEAN = "lean"


def _complete_case(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the cases whose names begin like this, for the shell."""
    from joulediff.cases.library import find_cases

    library = ctx.parent.params.get("library") if ctx.parent is not None else None
    return [case.id for case in find_cases(library and Path(library)) if case.id.startswith(incomplete)]


@click.group(
    "cases",
    invoke_without_command=True,
    no_args_is_help=False,
    epilog=examples(
        ("joulediff cases list", "every case"),
        ("joulediff cases run pytorch-153195", "run one and judge its diff"),
    ),
)
@click.option(
    "--library", envvar="JOULEDIFF_CASES", metavar="FOLDER", help="Folder of other cases.  [the built-in ones]"
)
@verbose_option
@click.pass_context
def command(ctx: click.Context, library: str | None) -> None:
    """List and run known cases of wasted energy, two programs each."""
    ctx.obj = None if library is None else Path(library)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command(
    "list",
    epilog=examples(
        ("joulediff cases list", "every case"),
        ("joulediff cases list --json -", "the same, as JSON"),
    ),
)
@output_options
@click.pass_obj
def list_command(library: Path | None, json_to: str | None) -> int:
    """Show every case, and whether it can run here."""
    from joulediff.cases.catalogue import catalogue_to_json, print_catalogue
    from joulediff.cases.library import find_cases
    from joulediff.cli.output import open_console, refuse_unwritable, write_text

    refuse_unwritable(json_to)
    cases = find_cases(library)
    lacking = _lacking(cases)
    if json_to != "-":
        print_catalogue(cases, lacking, open_console())
    if json_to is not None:
        write_text(catalogue_to_json(cases, lacking), json_to)
    return 0


@command.command(
    "show",
    epilog=examples(
        ("joulediff cases show pytorch-153195", "one case"),
        ("joulediff cases show pytorch-153195 --programs", "with its two programs"),
    ),
)
@click.argument("name", metavar="ID", shell_complete=_complete_case)
@click.option("--programs", is_flag=True, help="Show the two programs as well.")
@verbose_option
@click.pass_obj
def show_command(library: Path | None, name: str, programs: bool) -> int:  # noqa: FBT001
    """Show one case in full."""
    from joulediff.cases.catalogue import print_case
    from joulediff.cases.library import find_case
    from joulediff.cli.output import open_console

    case = find_case(name, library)
    print_case(case, _lacking([case])[case.id], open_console(), programs=programs, library=library)
    return 0


@command.command(
    "run",
    epilog=examples(
        ("joulediff cases run pytorch-153195", "one case"),
        ("joulediff cases run --all --keep results --skip-done", "all not done yet"),
        ("joulediff cases run pytorch-153195 --lean", "lean with itself"),
    ),
)
@click.argument("names", metavar="ID...", nargs=-1, shell_complete=_complete_case)
@click.option("--all", "every", is_flag=True, help="Run every case.")
@click.option("--only", type=click.Choice(["published", "ours"]), help="Run only the cases of one origin.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where to run.  [cuda if there is a GPU, else cpu]")
@click.option("--size", type=click.Choice(["small", "large"]), help="How much work.  [large on cuda, small on cpu]")
@click.option("--lean", is_flag=True, help="Compare the lean program with itself; a finding is an error.")
@click.option("--confirm", is_flag=True, help="Run the whole program again with each fix that can be applied.")
@click.option("--keep", metavar="FOLDER", help="Keep recordings, diffs and results.json there.")
@click.option("--skip-done", is_flag=True, help="Leave out cases that have a result in the folder of --keep.")
@click.option("--limit", type=click.IntRange(min=1), metavar="SECONDS", help="Time after which a case fails.  [400]")
@click.option("--budget", type=click.FloatRange(min=0), metavar="SECONDS", help="Time after which no case begins.")
@json_option
@markdown_option
@recording_options(CASE_OPTIONS)
@verbose_option
@click.pass_obj
def run_command(
    library: Path | None,
    names: tuple[str, ...],
    every: bool,  # noqa: FBT001
    only: str | None,
    device: DeviceName | None,
    size: Size | None,
    lean: bool,  # noqa: FBT001
    confirm: bool,  # noqa: FBT001
    keep: str | None,
    skip_done: bool,  # noqa: FBT001
    limit: int | None,
    budget: float | None,
    json_to: str | None,
    markdown_to: str | None,
    options: RecordOptions,
) -> int:
    """Run cases, and judge the findings of each diff.

    With --keep, results are stored after each case: --skip-done continues a run that was stopped or reached its budget.

    Exit code 0: every case that ran is found, or fixed upstream; 3: one is not.
    """
    from joulediff.cases.judge import all_good
    from joulediff.cases.results import open_results
    from joulediff.cases.run import JobOptions
    from joulediff.cli.output import ReportFiles, stdout_kept_clean
    from joulediff.model.errors import JoulediffError

    cases = _choose(library, names, every=every, only=only)
    if skip_done and keep is None:
        raise JoulediffError("--skip-done needs a folder with results", fix="name it with --keep FOLDER")
    files = ReportFiles({"--json": json_to, "--markdown": markdown_to})
    files.refuse()
    how = JobOptions(options, device, size, confirm=confirm, same="lean" if lean else None)
    folder = None if keep is None else Path(keep)
    if folder is not None and lean:  # a lean program compared with itself is no result of the case
        folder /= LEAN
    with open_results(folder) as results:
        try:
            with stdout_kept_clean(files.takes_stdout):
                left = [case for case in cases if not (skip_done and results.has(case.id))]
                _run_all(left, how, results, times=(limit, budget), is_quiet=files.takes_stdout)
        finally:  # Ctrl-C ends the running case, and keeps those before it
            _write_reports(files, results.judged, is_single=len(cases) == 1)
    return 0 if all_good(results.judged) else NOT_FOUND


@command.command(
    "judge",
    epilog=examples(
        ("joulediff cases judge results", "judge kept results again"),
        ("joulediff cases judge results --markdown cases.md", "as a table"),
    ),
)
@click.argument("folder", metavar="FOLDER")
@markdown_option
@output_options
@click.pass_obj
def judge_command(library: Path | None, folder: str, json_to: str | None, markdown_to: str | None) -> int:
    """Judge kept results again, without a device.

    FOLDER is that of `joulediff cases run --keep FOLDER`.

    Exit code 0: every case that ran is found, or fixed upstream; 3: one is not.
    """
    from joulediff.cases.judge import all_good
    from joulediff.cases.library import find_cases
    from joulediff.cases.results import judge_kept
    from joulediff.cli.output import ReportFiles

    files = ReportFiles({"--json": json_to, "--markdown": markdown_to})
    files.refuse()
    judgements = judge_kept(Path(folder), find_cases(library))
    _write_reports(files, judgements)
    return 0 if all_good(judgements) else NOT_FOUND


@command.command(
    "recompute",
    epilog=examples(
        ("joulediff cases recompute results", "all kept results"),
        ("joulediff cases recompute results pytorch-153195", "one of them"),
    ),
)
@click.argument("folder", metavar="FOLDER")
@click.argument("names", metavar="[ID...]", nargs=-1)
@verbose_option
@click.pass_obj
def recompute_command(library: Path | None, folder: str, names: tuple[str, ...]) -> int:
    """Judge kept results again, and store what changed.

    FOLDER is that of `joulediff cases run --keep FOLDER`. Judgements follow from the stored diffs and recordings and
    from case.toml. results.json notes which fields changed, from what and with which version. Nothing that was measured
    changes; a folder that was edited after the recording is refused.
    """
    from joulediff.cases.library import find_cases
    from joulediff.cases.recompute import recompute
    from joulediff.report.views.short_texts import count_text

    changes = 0
    for change in recompute(Path(folder), find_cases(library), names):
        click.echo(f"{change.case}: {', '.join(change.fields)}")
        changes += 1
    click.echo(f"{count_text(changes, 'judgement')} changed")
    return 0


def _lacking(cases: list[Case] | tuple[Case, ...]) -> dict[str, str | None]:
    from joulediff.cases.library import choose_device, has_nvidia, lacks

    has_gpu = has_nvidia()
    return {case.id: lacks(case, choose_device(case, has_gpu=has_gpu)) for case in cases}


def _write_reports(files: ReportFiles, judgements: Sequence[Judgement], *, is_single: bool = False) -> None:
    """Print a table of several cases, and write the reports that were asked for."""
    from joulediff.cases.judgement_report import judgements_to_markdown, print_judgements
    from joulediff.cases.results import results_to_json
    from joulediff.cli.output import open_console, write_text

    if not files.takes_stdout and not is_single and judgements:
        print_judgements(judgements, open_console())
    json_to, markdown_to = files.files["--json"], files.files["--markdown"]
    if json_to is not None:
        write_text(results_to_json(judgements), json_to)
    if markdown_to is not None:
        write_text(judgements_to_markdown(judgements), markdown_to)


def _choose(library: Path | None, names: Sequence[str], *, every: bool, only: str | None) -> Sequence[Case]:
    from joulediff.cases.library import find_cases
    from joulediff.model.errors import JoulediffError

    if bool(names) == every:
        raise JoulediffError("it is not clear which cases to run", fix="name cases, or give --all")
    cases = find_cases(library, None if every else names)
    chosen = [case for case in cases if only in (None, case.origin)]
    if not chosen:
        what = f"none of these cases is {only}" if names else f"the library has no case that is {only}"
        raise JoulediffError(what, fix="`joulediff cases list` shows all cases")
    return chosen


def _run_all(
    cases: Sequence[Case],
    options: JobOptions,
    results: ResultsFolder,
    *,
    times: tuple[int | None, float | None],
    is_quiet: bool,
) -> None:
    """Run cases; `times` are the limit of one and the budget of all."""
    from joulediff.cases.run import make_jobs
    from joulediff.cases.run_all import LIMIT_S, run_all
    from joulediff.cli.output import StageLines

    limit, budget = times
    begin_s = time.monotonic()

    jobs = make_jobs(cases, options, results.folder)
    is_single = len(jobs) == 1

    def open_listener(number: int, job: Job) -> StageLines:
        return StageLines("" if is_single else f"{job.case.id} ({number} of {len(jobs)}): ")

    with closing(run_all(jobs, open_listener, limit_s=limit or LIMIT_S)) as running:
        for number, (job, result) in enumerate(running, start=1):
            results.add(result.judgement)
            _print_result(job, result, with_diff=is_single and not is_quiet, is_quiet=is_quiet)
            if budget is not None and time.monotonic() - begin_s > budget and number < len(jobs):
                click.echo(f"the budget is spent; not begun: {len(jobs) - number} of {len(jobs)}", err=is_quiet)
                return


def _print_result(job: Job, result: JobResult, *, with_diff: bool, is_quiet: bool) -> None:
    from joulediff.cases.judgement_report import judged_text
    from joulediff.cli.output import open_console
    from joulediff.report.terminal.diff import print_diff

    if result.error is not None:
        if is_verbose.get():
            traceback.print_exception(result.error)
        if result.error.fix:
            click.echo(f"joulediff: {job.case.id}: {result.error.fix}", err=True)
    if result.diff is not None and with_diff:
        print_diff(result.diff, open_console())
        click.echo()
    click.echo(judged_text(result.judgement), err=is_quiet)
