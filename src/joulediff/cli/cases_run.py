"""`joulediff cases run`: each case's two programs, compared and judged. What is judged stays, whatever comes after."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import recording_options
from joulediff.cli.output import StageLines
from joulediff.cli.verbose import is_verbose
from joulediff.model.options import CASE_OPTIONS, RecordOptions
from joulediff.model.pair import SideName
from joulediff.model.progress import ProgressListener

if TYPE_CHECKING:
    from joulediff.cases.case import Case, DeviceName
    from joulediff.cases.judge import Judgement
    from joulediff.cases.run import Size
    from joulediff.diagnosis.interleaved_recording import Program
    from joulediff.model.diff import Diff
    from joulediff.process.client import RemoteProgram

NOT_FOUND = 3
LEAN = "lean"
# With fewer cores, processes that import beside a measurement would disturb it.
ROOMY = 8


@click.command("run")
@click.argument("names", metavar="ID...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Run every case.")
@click.option("--only", type=click.Choice(["published", "ours"]), help="Of these, those of one origin.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where to run.  [cuda where a GPU is, else cpu]")
@click.option("--size", type=click.Choice(["small", "large"]), help="How much work.  [large on cuda, small on cpu]")
@click.option("--lean", is_flag=True, help="Compare the lean program with itself: nothing must be found.")
@click.option("--confirm", is_flag=True, help="Run the whole program again with each fix that can be applied.")
@click.option("--keep", metavar="FOLDER", help="Keep recordings, diffs and results.json there.")
@click.option("--json", "json_to", metavar="FILE", help="Write JSON to FILE; - is standard output.")
@click.option("--markdown", "markdown_to", metavar="FILE", help="Write Markdown to FILE; - is standard output.")
@recording_options(CASE_OPTIONS)
@click.option("-v", "--verbose", count=True, expose_value=False, help="-vv shows tracebacks.")
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
    json_to: str | None,
    markdown_to: str | None,
    options: RecordOptions,
) -> int:
    """Run cases, and judge what a diff finds in each.

    Exit code 0: every case that ran is found, or fixed upstream; 3: one is not.
    """
    from joulediff.cases.table import all_good
    from joulediff.cli.output import stdout_kept_clean

    cases = _choose(library, names, every=every, only=only)
    reports = Reports(json_to, markdown_to)
    reports.refuse()
    how = _Options(options, device, size, lean=lean, confirm=confirm)
    with ExitStack() as stack:
        # A lean program against itself is no recording of the case.
        shelf = _Shelf.open(str(Path(keep) / LEAN) if keep is not None and lean else keep, stack)
        try:
            with stdout_kept_clean(reports.takes_stdout):
                _run_all(cases, how, shelf, is_quiet=reports.takes_stdout)
        finally:  # Ctrl-C ends the case that runs, and leaves those before it
            reports.write(shelf.judged, is_single=len(cases) == 1)
    return 0 if all_good(shelf.judged) else NOT_FOUND


@dataclass(frozen=True, slots=True)
class _Options:
    """How cases are run; a device or a size of None is chosen for each."""

    recording: RecordOptions
    device: DeviceName | None
    size: Size | None
    lean: bool
    confirm: bool


@dataclass(slots=True)
class _Shelf:
    """Where cases are kept, and those that are judged. A folder of the user's has the results of earlier calls too."""

    folder: Path
    is_kept: bool
    before: Sequence[Judgement] = ()
    judged: list[Judgement] = field(default_factory=list)

    @classmethod
    def open(cls, keep: str | None, stack: ExitStack) -> _Shelf:
        """Return a shelf in a folder of the user's, or in one that is gone afterwards."""
        from joulediff.cases.kept import read_results
        from joulediff.model.errors import JoulediffError

        if keep is None:
            return cls(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="joulediff-"))), is_kept=False)
        folder = Path(keep)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JoulediffError(
                f"cannot keep cases in {keep} ({error.strerror})", fix="choose another folder for --keep"
            ) from error
        return cls(folder, is_kept=True, before=read_results(folder))

    def add(self, judgement: Judgement) -> None:
        """Keep a judgement, in the folder at once."""
        from joulediff.cases.kept import write_results

        self.judged.append(judgement)
        if self.is_kept:
            write_results(self.folder, self.judged, self.before)


@dataclass(frozen=True, slots=True)
class Reports:
    """Where the reports of cases go besides the terminal."""

    json_to: str | None
    markdown_to: str | None

    @property
    def takes_stdout(self) -> bool:
        """Whether standard output is a report's."""
        return "-" in (self.json_to, self.markdown_to)

    def refuse(self) -> None:
        """Raise where a report cannot be written, before anything runs for it."""
        from joulediff.cli.output import refuse_recording, refuse_unwritable
        from joulediff.model.errors import JoulediffError

        for option, place in (("--json", self.json_to), ("--markdown", self.markdown_to)):
            refuse_unwritable(place, option=option)
            refuse_recording(place, option=option)
        if self.json_to == self.markdown_to == "-":
            raise JoulediffError("two reports cannot share standard output", fix="write one of them to a file")
        if self.json_to is not None and self.json_to == self.markdown_to:
            raise JoulediffError(f"two reports cannot share {self.json_to}", fix="give each a file of its own")

    def write(self, judgements: Sequence[Judgement], *, is_single: bool = False) -> None:
        """Show a table, but of a single case, which is told already, and write what was asked for."""
        from joulediff.cases.kept import results_to_json
        from joulediff.cases.show import judgements_to_markdown, print_judgements
        from joulediff.cli.output import open_console, write_text

        if not self.takes_stdout and not is_single and judgements:
            print_judgements(judgements, open_console())
        if self.json_to is not None:
            write_text(results_to_json(judgements), self.json_to)
        if self.markdown_to is not None:
            write_text(judgements_to_markdown(judgements), self.markdown_to)


def has_nvidia() -> bool:
    """Return whether a program here sees an NVIDIA GPU, without starting CUDA."""
    from joulediff.measuring.meters.nvml import open_nvml
    from joulediff.model.errors import MeterUnavailable

    try:
        open_nvml().close()
    except MeterUnavailable:
        return False
    return True


def _choose(library: Path | None, names: Sequence[str], *, every: bool, only: str | None) -> Sequence[Case]:
    from joulediff.cases.library import find_cases
    from joulediff.model.errors import JoulediffError

    if bool(names) == every:
        raise JoulediffError("which cases to run is not clear", fix="name some, or say --all")
    cases = find_cases(library, None if every else names)
    chosen = [case for case in cases if only in (None, case.origin)]
    if not chosen:
        told = f"none of these cases is {only}" if names else f"the library has no case that is {only}"
        raise JoulediffError(told, fix="`joulediff cases list` has them all")
    return chosen


def _run_all(cases: Sequence[Case], options: _Options, shelf: _Shelf, *, is_quiet: bool) -> None:
    from joulediff.cases.judge import Judgement
    from joulediff.cases.library import choose_device, lacks
    from joulediff.cases.table import judged_text
    from joulediff.cli.output import open_console
    from joulediff.report.terminal.diff import print_diff

    has_gpu = options.device is None and has_nvidia()
    devices = [options.device or choose_device(case, has_gpu=has_gpu) for case in cases]
    jobs = [_Job(case, device, options, shelf.folder / case.id) for case, device in zip(cases, devices, strict=True)]
    runnable = [job for job in jobs if lacks(job.case, job.device) is None]
    with _Queue(runnable) as queue:
        for place, job in enumerate(jobs, 1):
            diff, why = None, lacks(job.case, job.device)
            if why is not None:
                judged = Judgement(job.case.id, "not run", note=why)
            else:
                judged, diff = _run_one(
                    job, queue, f"{job.case.id} ({place} of {len(jobs)}): " if len(jobs) > 1 else ""
                )
            shelf.add(judged)
            if diff is not None and len(cases) == 1 and not is_quiet:
                print_diff(diff, open_console())
                click.echo()
            click.echo(judged_text(judged), err=is_quiet)


@dataclass(frozen=True, slots=True)
class _Job:
    """A case to run."""

    case: Case
    device: DeviceName
    options: _Options
    folder: Path

    @property
    def size(self) -> Size:
        return self.options.size or ("large" if self.device == "cuda" else "small")

    def programs(self) -> dict[SideName, Program]:
        from joulediff.cases.run import programs_of

        options = self.options
        return programs_of(
            self.case,
            device=self.device,
            size=self.size,
            folder=self.folder,
            options=options.recording,
            lean=options.lean,
        )


class _Queue:
    """Starts the next case's processes while one is replayed, where a GPU does the work and cores are left.

    They import what they need, which takes as long as a small case's measurements, and touch no device meanwhile.
    """

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._jobs = list(jobs)
        self._ahead: tuple[_Job, ExitStack, dict[SideName, RemoteProgram]] | None = None
        self._is_roomy = len(os.sched_getaffinity(0)) >= ROOMY if hasattr(os, "sched_getaffinity") else False

    def __enter__(self) -> _Queue:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead[1].close()

    @contextmanager
    def processes_of(self, job: _Job) -> Iterator[Mapping[SideName, RemoteProgram] | None]:
        """Give the processes of a case, if they were started; they are gone afterwards."""
        ahead, self._ahead = self._ahead, None
        with ExitStack() as stack:
            if ahead is not None:
                stack.push(ahead[1])
            yield ahead[2] if ahead is not None and ahead[0] is job else None

    def start_after(self, job: _Job) -> None:
        """Start the processes of the case that comes after this one."""
        from joulediff.diagnosis.interleaved_recording import started
        from joulediff.model.errors import JoulediffError

        following = self._jobs[self._jobs.index(job) + 1 :][:1]
        if not self._is_roomy or not following or following[0].device == "cpu" or job.device == "cpu":
            return
        stack = ExitStack()
        try:
            served = stack.enter_context(started(following[0].programs(), hold=True))
        except JoulediffError:  # its own turn will tell
            return
        self._ahead = (following[0], stack, served)


class _Watching(ProgressListener):
    """Shows stages, and calls once when what is measured before anything watches is done."""

    def __init__(self, shown: ProgressListener, then: Callable[[], None]) -> None:
        self._shown, self._then = shown, then
        self._is_called = False

    def stage(self, text: str, share: float | None = None) -> None:
        self._shown.stage(text, share)
        if "traced" in text and not self._is_called:
            self._is_called = True
            self._then()


def _run_one(job: _Job, queue: _Queue, name: str) -> tuple[Judgement, Diff | None]:
    """Return the judgement of a case and its diff; one whose program fails says why. Stages begin with `name`."""
    with queue.processes_of(job) as ahead:
        return _judge_one(job, ahead, _Watching(StageLines(name), lambda: queue.start_after(job)))


def _judge_one(
    job: _Job, ahead: Mapping[SideName, RemoteProgram] | None, listener: ProgressListener
) -> tuple[Judgement, Diff | None]:
    from joulediff.archive import load
    from joulediff.cases.judge import Judgement, judge, judge_same
    from joulediff.cases.run import run_case
    from joulediff.model.errors import JoulediffError
    from joulediff.process.exit_reasons import Stopped

    case, options, begin_s = job.case, job.options, time.monotonic()
    try:
        diff, files = run_case(
            case,
            device=job.device,
            size=job.size,
            folder=job.folder,
            options=options.recording,
            confirm=options.confirm,
            lean=options.lean,
            listener=listener,
            ahead=ahead,
        )
        run, seconds = load(files["a"]), time.monotonic() - begin_s
    except Stopped:
        raise
    except JoulediffError as error:
        if is_verbose.get():
            traceback.print_exc()
        if error.fix:
            click.echo(f"joulediff: {case.id}: {error.fix}", err=True)
        note = " ".join(error.what.split()).replace(f"{case.folder}{os.sep}", "")
        return Judgement(case.id, "failed", seconds=time.monotonic() - begin_s, note=note), None
    return (judge_same if options.lean else judge)(case, diff, run, seconds), diff
