"""Run cases one after the other: a case that fails is judged as failed and stops no other.

On a GPU with enough CPU cores, the processes of the next case start and import while a case is traced and replayed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from joulediff.archive import load
from joulediff.cases import library, run
from joulediff.cases.case import Case, DeviceName
from joulediff.cases.judge import Judgement, judge, judge_same
from joulediff.cases.run import Size
from joulediff.diagnosis import interleaved_recording
from joulediff.diagnosis.interleaved_recording import Program
from joulediff.model.diff import Diff
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.model.pair import SideName
from joulediff.model.progress import ProgressListener
from joulediff.process.client import RemoteProgram
from joulediff.process.exit_reasons import Stopped

# With fewer cores, processes that import beside a measurement would disturb it.
ROOMY = 8


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How cases are run; a device or a size of None is chosen for each."""

    recording: RecordOptions
    device: DeviceName | None
    size: Size | None
    lean: bool
    confirm: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A case to run on a device."""

    case: Case
    device: DeviceName
    options: JobOptions
    folder: Path

    @property
    def size(self) -> Size:
        """The requested size, or the default for the device."""
        return self.options.size or ("large" if self.device == "cuda" else "small")

    @property
    def lack(self) -> str | None:
        """Why the case cannot run here; None if it can."""
        return library.lacks(self.case, self.device)

    def programs(self) -> dict[SideName, Program]:
        """Return the two programs of the case."""
        return run.programs_of(
            self.case,
            device=self.device,
            size=self.size,
            folder=self.folder,
            options=self.options.recording,
            lean=self.options.lean,
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
        diff, files = run.run_case(
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
        wasteful, seconds = load(files["a"]), time.monotonic() - begin_s
    except Stopped:
        raise
    except JoulediffError as error:
        note = " ".join(error.what.split()).replace(f"{case.folder}{os.sep}", "")
        failed = Judgement(case.id, "failed", seconds=time.monotonic() - begin_s, note=note)
        return JobResult(failed, error=error)
    judged = (judge_same if options.lean else judge)(case, diff, wasteful, seconds)
    return JobResult(judged, diff=diff)
