"""Run cases, each like `joulediff diff wasteful.py lean.py`, and store the result of each in a folder.

The folder has `a.jd`, `b.jd` and `diff.json`; from these the case can be judged again without the device. `run_jobs`
runs several: a case that fails is judged as failed and stops no other. On a GPU with enough CPU cores, the processes of
the next case start and import while a case is traced and replayed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from joulediff.archive.reader import load_run
from joulediff.archive.snapshot import Snapshot
from joulediff.archive.writer import save
from joulediff.cases import library
from joulediff.cases.case import Case, DeviceName
from joulediff.cases.judge import Judgement, judge, judge_same
from joulediff.diagnosis import interleaved_recording
from joulediff.diagnosis.compare_programs import compare_programs
from joulediff.diagnosis.interleaved_recording import Program
from joulediff.model.diff import Diff
from joulediff.model.errors import JoulediffError
from joulediff.model.options import CASE_OPTIONS, DiffOptions, RecordOptions
from joulediff.model.pair import SideName
from joulediff.model.progress import ProgressListener
from joulediff.process.client import RemoteProgram
from joulediff.process.exit_reasons import Stopped, explain_exit
from joulediff.process.interpreter import find_interpreter
from joulediff.process.request import Request
from joulediff.report.json.diff import diff_to_json

Size = Literal["small", "large"]
DIFF = "diff.json"
RUNS: dict[SideName, str] = {"a": "a.jd", "b": "b.jd"}
ProgramName = Literal["wasteful", "lean"]
_AGAIN = " again"
SAME_LABEL = f"lean{_AGAIN}"
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST_SIGNALS = 4096
# With fewer cores, processes that import beside a measurement would disturb it.
ROOMY = 8


def programs_of(
    case: Case,
    *,
    folder: Path,
    arguments: tuple[str, ...] = (),
    options: RecordOptions = CASE_OPTIONS,
    same: ProgramName | None = None,
) -> dict[SideName, Program]:
    """Return the two programs of a case; their runs are stored in a folder. With `same`, both are that one."""
    return {side: _program(case, side, options, arguments, folder / name, same) for side, name in RUNS.items()}


def run_case(
    case: Case,
    *,
    folder: Path,
    arguments: tuple[str, ...] = (),
    options: RecordOptions = CASE_OPTIONS,
    confirm: bool = DiffOptions.confirm,
    same: ProgramName | None = None,
    same_work_counts: bool = False,
    listener: ProgressListener | None = None,
    ahead: Mapping[SideName, RemoteProgram] | None = None,
) -> tuple[Diff, dict[SideName, Path]]:
    """Return the diff of a case's two programs, and the files of their runs; older files in the folder are deleted.

    Ctrl-C always raises: a diff whose trials were stopped cannot be judged. `arguments` are the programs' `sys.argv`,
    `options` say how long and with which meter to measure. With `same`, that program runs on both sides. `ahead` are
    processes of these programs that were started before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[SideName, Path] = {side: folder / name for side, name in RUNS.items()}
    for old in (*files.values(), folder / DIFF):
        with suppress(FileNotFoundError):
            old.unlink()
    programs = programs_of(case, folder=folder, arguments=arguments, options=options, same=same)
    with _stop_noted() as find_stop:
        diff = compare_programs(
            programs,
            {},
            DiffOptions(confirm=confirm),
            listener=listener or ProgressListener(),
            ahead=ahead,
            same_work_counts=same_work_counts,
        )
        if (number := find_stop()) is not None:
            raise explain_exit("", None, number)
    diff = replace(
        diff,
        a=replace(diff.a, program=_shown(programs["a"].request.program)),
        b=replace(diff.b, program=_shown(programs["b"].request.program)),
    )
    (folder / DIFF).write_text(diff_to_json(diff), encoding="utf-8")
    return diff, files


def is_same(diff: Diff) -> bool:
    """Return whether one program of a case ran on both sides."""
    return diff.b.label == diff.a.label + _AGAIN


@contextmanager
def _stop_noted() -> Iterator[Callable[[], int | None]]:
    """Give a function that returns the signal that asked to stop, if one came.

    A diagnosis that is stopped during trials ends them and returns normally, so the signal must be noted. Signals
    reach only the main thread; in other threads none is noted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield lambda: _read_stop(reader)
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _read_stop(reader: int) -> int | None:
    try:
        numbers = os.read(reader, _MOST_SIGNALS)
    except BlockingIOError:
        return None
    return next((number for number in numbers if number in _STOPS), None)


def _program(
    case: Case,
    side: SideName,
    options: RecordOptions,
    arguments: tuple[str, ...],
    file: Path,
    same: ProgramName | None,
) -> Program:
    name: ProgramName = same or ("wasteful" if side == "a" else "lean")
    path = case.wasteful if name == "wasteful" else case.lean
    label = name + _AGAIN if same is not None and side == "b" else name
    request = Request(str(path), replace(options, label=label), arguments)
    return Program(request, find_interpreter(), _keep_in(file, str(path)))


def _shown(program: str) -> str:
    """Return the name of a program in stored files: without the folders of this machine."""
    return "/".join(("cases", *Path(program).parts[-2:]))


def _keep_in(file: Path, program: str) -> Callable[[Snapshot], None]:
    def keep(recording: Snapshot) -> None:
        save(recording.changed(program=_shown(program)), file)

    return keep


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How cases are run; a device or a size of None is chosen for each."""

    recording: RecordOptions
    device: DeviceName | None
    size: Size | None
    confirm: bool
    same: ProgramName | None = None
    """The program that runs on both sides; None compares the wasteful one with the lean one."""
    takes_arguments: bool = True
    """Whether the programs read the device and the size from their arguments."""
    same_work_counts: bool = False
    """Test rows with the same work on both sides as well."""


@dataclass(frozen=True, slots=True)
class Job:
    """A case to run on a device."""

    case: Case
    device: DeviceName
    options: JobOptions
    folder: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        """The `sys.argv` of both programs: the requested size, or the default for the device."""
        if not self.options.takes_arguments:
            return ()
        size = self.options.size or ("large" if self.device == "cuda" else "small")
        return ("--device", self.device, "--size", size)

    @property
    def lack(self) -> str | None:
        """Why the case cannot run here; None if it can."""
        return library.lacks(self.case, self.device)

    def programs(self) -> dict[SideName, Program]:
        """Return the two programs of the case."""
        return programs_of(
            self.case,
            folder=self.folder,
            arguments=self.arguments,
            options=self.options.recording,
            same=self.options.same,
        )


@dataclass(frozen=True, slots=True)
class JobResult:
    """The judgement of a case, with its diff, or with the error for which it failed."""

    judgement: Judgement
    diff: Diff | None = None
    error: JoulediffError | None = None


def make_jobs(cases: Sequence[Case], options: JobOptions, folder: Path) -> list[Job]:
    """Return a job for each case, on the device that was asked for or that suits it."""
    has_gpu = options.device is None and library.has_nvidia()
    devices = [options.device or library.choose_device(case, has_gpu=has_gpu) for case in cases]
    return [Job(case, device, options, folder / case.id) for case, device in zip(cases, devices, strict=True)]


def run_jobs(
    jobs: Sequence[Job], open_listener: Callable[[int, Job], ProgressListener]
) -> Generator[tuple[Job, JobResult]]:
    """Yield each job with its result. `open_listener` gets the number of a job, from 1, and the job."""
    with JobQueue([job for job in jobs if job.lack is None]) as queue:
        for number, job in enumerate(jobs, start=1):
            if job.lack is not None:
                yield job, JobResult(Judgement(job.case.id, "not run", note=job.lack))
                continue
            with queue.processes_of(job) as ahead:
                listener = StartsNext(open_listener(number, job), queue, job)
                result = _run_job(job, ahead, listener)
            yield job, result


class JobQueue:
    """Starts the processes of the next case ahead. They import modules and use no device until their turn."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = list(jobs)
        self._ahead: tuple[Job, ExitStack, dict[SideName, RemoteProgram]] | None = None
        self._is_roomy = len(os.sched_getaffinity(0)) >= ROOMY if hasattr(os, "sched_getaffinity") else False

    def __enter__(self) -> JobQueue:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead[1].close()

    @contextmanager
    def processes_of(self, job: Job) -> Iterator[Mapping[SideName, RemoteProgram] | None]:
        """Yield the processes of a case if they were started in advance. Ends all such processes on exit."""
        ahead, self._ahead = self._ahead, None
        with ExitStack() as stack:
            if ahead is not None:
                stack.push(ahead[1])
            yield ahead[2] if ahead is not None and ahead[0] is job else None

    def start_after(self, job: Job) -> None:
        """Start the processes of the case after this one."""
        following = self._jobs[self._jobs.index(job) + 1 :][:1]
        if not self._is_roomy or not following or following[0].device == "cpu" or job.device == "cpu":
            return
        stack = ExitStack()
        try:
            processes = stack.enter_context(interleaved_recording.started(following[0].programs(), hold=True))
        except JoulediffError:  # the case starts them again in its turn, and reports the error then
            return
        self._ahead = (following[0], stack, processes)


class StartsNext(ProgressListener):
    """Starts the next case once the programs of a case are metered; passes everything on."""

    def __init__(self, listener: ProgressListener, queue: JobQueue, job: Job) -> None:
        self._listener, self._queue, self._job = listener, queue, job

    def stage(self, text: str, share: float | None = None) -> None:
        self._listener.stage(text, share)

    def metered(self) -> None:
        self._listener.metered()
        self._queue.start_after(self._job)


def _run_job(job: Job, ahead: Mapping[SideName, RemoteProgram] | None, listener: ProgressListener) -> JobResult:
    case, options, begin_s = job.case, job.options, time.monotonic()
    try:
        diff, files = run_case(
            case,
            folder=job.folder,
            arguments=job.arguments,
            options=options.recording,
            confirm=options.confirm,
            same=options.same,
            same_work_counts=options.same_work_counts,
            listener=listener,
            ahead=ahead,
        )
        wasteful, seconds = load_run(files["a"]), time.monotonic() - begin_s
    except Stopped:
        raise
    except JoulediffError as error:
        note = " ".join(error.what.split()).replace(f"{case.folder}{os.sep}", "")
        failed = Judgement(case.id, "failed", seconds=time.monotonic() - begin_s, note=note)
        return JobResult(failed, error=error)
    judged = (judge if options.same is None else judge_same)(case, diff, wasteful, seconds)
    return JobResult(judged, diff=diff)
