"""`joulediff diff`: compare two programs, and find which one wastes energy, where, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
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
    program_arguments,
    quiet_option,
    recording_options,
    scale_options,
    seconds_option,
    share_option,
    tolerance_option,
    top_option,
    verbose_option,
)
from joulediff.model.energy import Scale
from joulediff.model.options import DiffOptions, RecordOptions
from joulediff.model.pair import SideName, other_side
from joulediff.report.limits import TOP_FINDINGS

if TYPE_CHECKING:
    from joulediff.archive.snapshot import Snapshot
    from joulediff.cli.output import ReportFiles
    from joulediff.diagnosis.interleaved_recording import Program
    from joulediff.model.apis.api_diff import ApiDiff
    from joulediff.model.apis.api_run import ApiRun
    from joulediff.model.diff import Diff, GateVerdict
    from joulediff.model.pair import Pair
    from joulediff.model.progress import ProgressListener
    from joulediff.model.run import Run

GATE_CODES: Mapping[GateVerdict, int] = {"passed": 0, "failed": 3, "cannot tell": 2}


@click.command(
    "diff",
    cls=ProgramCommand,
    epilog=examples(
        ("joulediff diff old.py new.py", "record, compare, try fixes"),
        ("joulediff diff hf.py:a hf.py:b -o report.md", "two functions of one file"),
        ("joulediff diff base.jd new.py --keep recordings", "a recording and a program"),
        ("joulediff diff base.jd new.jd --fail-above 5%", "exit code 3 if B uses more"),
    ),
)
@click.argument("first", metavar="A", shell_complete=complete_file)
@click.argument("second", metavar="B", shell_complete=complete_file)
@gather(
    "how",
    DiffOptions(),
    threshold=share_option("--threshold", DiffOptions.threshold, "Smallest difference in energy to report."),
    slower=share_option(
        "--slower", DiffOptions.slower, "Largest slowdown of the cheap side that still counts as waste."
    ),
    difference=share_option(
        "--difference", DiffOptions.difference, "Largest difference of outputs, beside rounding, of a waste."
    ),
    confirm=click.option(
        "--confirm",
        is_flag=True,
        default=DiffOptions.confirm,
        help="Run the whole program again with each fix that can be applied.",
    ),
    tolerance=tolerance_option("Largest relative difference of equal tensors."),
    fail_above=share_option(
        "--fail-above",
        DiffOptions.fail_above,
        "Gate: exit with 3 if B uses more energy than A by more than this, with 2 if that cannot be told.",
    ),
    gate_s=seconds_option(
        DiffOptions.gate_s, "Longest time to measure both again until the gate can tell.", "--settle", "gate_s"
    ),
)
@click.option("--timings", is_flag=True, help="Print the seconds of each stage on standard error.")
@quiet_option
@click.option("--keep", metavar="FOLDER", help="Keep the recordings of both programs there.")
@click.option("--python-a", metavar="PATH", help="Python of the environment to run A in.  [this one]")
@click.option("--python-b", metavar="PATH", help="Python of the environment to run B in.  [this one]")
@click.option("--label-a", metavar="TEXT", help="Name of A in reports.")
@click.option("--label-b", metavar="TEXT", help="Name of B in reports.")
@top_option(TOP_FINDINGS, "Findings to show.")
@every_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="Write a report; its suffix sets the format: .md, .json or .txt.",
)
@json_option
@markdown_option
@recording_options(RecordOptions())
@scale_options
@verbose_option
@click.pass_context
def command(
    ctx: click.Context,
    first: str,
    second: str,
    how: DiffOptions,
    options: RecordOptions,
    scale: Scale | None,
    timings: bool,  # noqa: FBT001
    quiet: bool,  # noqa: FBT001
    keep: str | None,
    python_a: str | None,
    python_b: str | None,
    label_a: str | None,
    label_b: str | None,
    top: int,
    every: bool,  # noqa: FBT001
    output: str | None,
    json_to: str | None,
    markdown_to: str | None,
) -> int:
    """Compare two programs, or recordings of them, and find the code that wastes energy.

    A and B are .jd files, or programs: FILE.py[:name] or module:name. Programs are recorded first, each in a separate
    process. Then the fix of each finding is applied and measured. Words after -- are the sys.argv of both; --step
    and --loop are for both. Two .jd files of `joulediff apis` are compared API by API and line by line.
    """
    from joulediff.cli.output import ReportFiles, StageLines, open_console, print_timings, stdout_kept_clean
    from joulediff.model.diff import scale_diff
    from joulediff.model.progress import StageTimes
    from joulediff.report.terminal.diff import print_diff

    files = ReportFiles({"-o": output, "--json": json_to, "--markdown": markdown_to})
    _refuse(files, first, second)
    sides: dict[SideName, _Side] = {
        "a": _Side("a", first, label_a, python_a, quiet=quiet),
        "b": _Side("b", second, label_b, python_b, quiet=quiet),
    }
    calls = _load_calls(sides)
    if calls is not None:
        _refuse_step_options(calls, scale)
        return _compare_calls(calls, sides, how, files, top=top, every=every)
    times = StageTimes(StageLines())
    with stdout_kept_clean(files.takes_stdout):
        diff = _compare(sides, how, options, program_arguments(ctx), keep, times)
    if timings:
        print_timings(times)
    if scale is not None:
        diff = replace(diff, many_steps=scale_diff(diff, scale))
    diff = replace(diff, next=_next(diff, sides, is_written=files.any))
    if not files.takes_stdout:
        print_diff(diff, open_console(), top=top, every=every)
    _write(files, diff, top=top, every=every)
    return _exit_code(diff)


@dataclass(slots=True)
class _Side:
    """One argument: a recording, or a program to record."""

    side: SideName
    target: str
    label: str | None
    python: str | None
    quiet: bool
    folder: Path | None = None
    recording: Snapshot | None = None
    """The recording so far; also in the folder, if there is one."""
    loaded: Run | ApiRun | None = None

    @property
    def is_archive(self) -> bool:
        """Whether the argument names a recording, by its name or by its first bytes."""
        from joulediff.archive.container import is_recording

        return is_recording(self.target)

    def read(self) -> Run | ApiRun:
        """Return the recording in the file, which is read once."""
        from joulediff.archive.reader import load

        if self.loaded is None:
            found = load(self.target)
            self.loaded = replace(found, label=self.label) if self.label else found
        return self.loaded

    def load(self) -> Run:
        from joulediff.archive.reader import require_run

        return require_run(self.read(), self.target)

    def program(self, options: RecordOptions, arguments: tuple[str, ...], folder: Path | None) -> Program:
        from joulediff.diagnosis.interleaved_recording import Program
        from joulediff.process.interpreter import find_interpreter
        from joulediff.process.request import Request
        from joulediff.pysource.programs import check_target, label_of

        check_target(self.target, options)
        self.folder = folder
        label = self.label or label_of(self.target)
        request = Request(self.target, replace(options, label=label), arguments, quiet=self.quiet)
        return Program(request, find_interpreter(self.python), self.keep)

    def keep(self, recording: Snapshot) -> None:
        self.recording = recording
        if self.folder is not None:
            self.save(self.file)

    @property
    def file(self) -> Path:
        """The file of the recording: in the folder, or in the current one without it."""
        from joulediff.cli.output import name_file

        assert self.recording is not None
        return (self.folder or Path()) / f"{self.side}-{name_file(self.recording.label)}"

    def save(self, place: Path) -> None:
        """Write the recording so far."""
        from joulediff.archive.writer import save

        assert self.recording is not None
        save(self.recording, place)


def _compare(
    sides: dict[SideName, _Side],
    how: DiffOptions,
    options: RecordOptions,
    arguments: tuple[str, ...],
    keep: str | None,
    listener: ProgressListener,
) -> Diff:
    from joulediff.archive.writer import open_folder
    from joulediff.cli.output import show_matching
    from joulediff.model.diff import Thresholds
    from joulediff.model.errors import JoulediffError

    if all(side.is_archive for side in sides.values()):
        from joulediff.diagnosis.compare import diagnose
        from joulediff.diagnosis.gate.judge import judge

        a, b = sides["a"].load(), sides["b"].load()
        with show_matching(a, b) as shown:
            found = diagnose(a, b, thresholds=Thresholds.of(how), tolerance=how.tolerance, listener=shown)
        return found if how.fail_above is None else replace(found, gate=judge(found, how.fail_above))
    from joulediff.diagnosis.interleaved_recording import started

    with nullcontext() if keep is None else open_folder(keep, "recordings") as folder:
        programs = {
            name: side.program(options, arguments, folder) for name, side in sides.items() if not side.is_archive
        }
        runs = {name: side.load() for name, side in sides.items() if side.is_archive}
        try:
            with started(programs) as ahead:
                # Imported while the programs start: it takes as long as half a second.
                from joulediff.diagnosis.compare_programs import compare_programs

                return compare_programs(programs, runs, how, listener=listener, ahead=ahead)
        except JoulediffError as error:
            error.fix = "\n  ".join(filter(None, [error.fix, *_rescue(sides)]))
            raise


def _load_calls(sides: dict[SideName, _Side]) -> Pair[ApiRun] | None:
    """Return the runs of two scripts, or None; raises if one side is such a run and the other is not."""
    from joulediff.model.apis.api_run import ApiRun
    from joulediff.model.errors import JoulediffError
    from joulediff.model.pair import Pair

    archives = {name: side for name, side in sides.items() if side.is_archive}
    calls = {name: found for name, side in archives.items() if isinstance(found := side.read(), ApiRun)}
    if len(calls) == len(sides):
        return Pair(calls["a"], calls["b"])
    for name in calls:
        script, step = sides[name].target, sides[other_side(name)].target
        raise JoulediffError(
            f"{script} (API calls of a script) and {step} (step of a program) cannot be compared",
            fix="record both with `joulediff apis FILE.py -o FILE.jd`, or both with `joulediff record`",
        )
    return None


def _refuse_step_options(calls: Pair[ApiRun], scale: Scale | None) -> None:
    from joulediff.model.errors import JoulediffError

    if scale is not None:
        raise JoulediffError(
            f"--times cannot be used for {calls.a.label} and {calls.b.label} (they are scripts, and have no step)",
            fix="leave it out",
        )


def _compare_calls(
    calls: Pair[ApiRun], sides: dict[SideName, _Side], how: DiffOptions, files: ReportFiles, *, top: int, every: bool
) -> int:
    """Compare two runs of scripts, report the result, and return the exit code."""
    from joulediff.cli.output import open_console
    from joulediff.diagnosis.api_runs.compare import compare_api_runs
    from joulediff.report.terminal.apis_diff import print_api_diff

    diff = compare_api_runs(calls.a, calls.b, threshold=how.threshold, fail_above=how.fail_above)
    if not files.any:
        names = " ".join(shlex.quote(side.target) for side in sides.values())
        diff = replace(diff, next=f"joulediff diff {names} -o report.md")
    if not files.takes_stdout:
        print_api_diff(diff, open_console(), top=top, every=every)
    _write(files, diff, top=top, every=every)
    if diff.gate is not None:
        return GATE_CODES[diff.gate.verdict]
    return 0 if diff.comparable else 2


def _rescue(sides: dict[SideName, _Side]) -> list[str]:
    """Keep the recordings that were made before an error, and return sentences that name their files."""
    from joulediff.model.errors import ArchiveError

    kept = []
    for side in sides.values():
        if side.recording is None:
            continue
        if side.folder is None:
            with suppress(ArchiveError):  # the error that is being reported matters more
                side.save(side.file)
        if side.file.exists():
            kept.append(f"the recording of {side.target} is kept: joulediff show {shlex.quote(str(side.file))}")
    return kept


def _next(diff: Diff, sides: dict[SideName, _Side], *, is_written: bool) -> str | None:
    from joulediff.diagnosis.suggest import find_fix

    names = " ".join(shlex.quote(side.target) for side in sides.values())
    is_tried = any(finding.proof.confirmation is not None for finding in diff.findings)
    if not is_tried and all(side.is_archive for side in sides.values()):
        if diff.findings:
            return "run joulediff diff on the two programs to measure the saving of each fix"
        if diff.not_explained is not None:
            return "run joulediff diff on the two programs to try causes"
    fixable = [f for f in diff.findings if f.proof.confirmed and find_fix(f) is not None]
    if any(f.proof.confirmation is not None and f.proof.confirmation.whole is None for f in fixable):
        return f"joulediff diff {names} --confirm"
    return None if is_written else f"joulediff diff {names} -o report.md"


def _refuse(files: ReportFiles, *inputs: str) -> None:
    """Raise if a report cannot be written, or would replace a program or recording that is compared."""
    from joulediff.cli.output import form_of
    from joulediff.model.errors import JoulediffError

    for place in files.files.values():
        if place not in (None, "-") and any(_is_same_file(each, str(place)) for each in inputs):
            raise JoulediffError(f"cannot write {place} (it is compared)", fix="choose another file")
    files.refuse()
    if files.files["-o"] not in (None, "-"):
        form_of(files.files["-o"])


def _write(files: ReportFiles, diff: Diff | ApiDiff, *, top: int, every: bool) -> None:
    from joulediff.cli.output import form_of, write_text
    from joulediff.report.render import render

    output = files.files["-o"]
    forms = {"--json": "json", "--markdown": "markdown", "-o": "terminal" if output == "-" else form_of(output)}
    for option, form in forms.items():
        place = files.files[option]
        if place is not None:
            write_text(render(diff, form, top=top, every=every), place)


def _is_same_file(target: str, place: str) -> bool:
    from joulediff.process.request import file_of

    path = Path(file_of(target))
    return path.exists() and Path(place).exists() and path.samefile(place)


def _exit_code(diff: Diff) -> int:
    """Return 3 if the gate failed, 2 if it cannot tell or the energies are not sound, else 0.

    A gate compares whole steps, so it needs no sum of operators.
    """
    if diff.gate is not None:
        return GATE_CODES[diff.gate.verdict]
    is_sound = diff.comparable and not (diff.ledger_a.exceeds_meter or diff.ledger_b.exceeds_meter)
    return 0 if is_sound else 2
