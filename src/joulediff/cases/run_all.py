"""Run jobs one after the other: one that fails, in whatever way, or takes too long, fails alone.

The time limit uses the alarm signal of the process, so it works only in the main thread.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager

from joulediff.cases.judge import Judgement
from joulediff.cases.run import Job, JobResult, run_jobs
from joulediff.model.errors import JoulediffError
from joulediff.model.progress import ProgressListener
from joulediff.process.exit_reasons import Stopped

# The slowest case takes about 100 s on two cores.
LIMIT_S = 400


class TookTooLong(Exception):
    """A job did not end in time."""


def run_all(
    jobs: Sequence[Job], open_listener: Callable[[int, Job], ProgressListener], *, limit_s: int = LIMIT_S
) -> Generator[tuple[Job, JobResult]]:
    """Yield each job with its result. `open_listener` gets the number of a job, from 1, and the job.

    The limit counts from the moment that a job opens its listener. An error that is no user's mistake is a result of
    its job as well: it must not cost the results of the others.
    """
    left, begin_s = list(jobs), time.monotonic()

    def begin(number: int, job: Job) -> ProgressListener:
        nonlocal begin_s
        begin_s = time.monotonic()
        signal.alarm(limit_s)
        return open_listener(done + number, job)

    while left:
        done = len(jobs) - len(left)
        try:
            with _limited(limit_s), closing(run_jobs(tuple(left), begin)) as running:
                for job, result in running:
                    signal.alarm(0)
                    left.remove(job)
                    yield job, result
        except (Stopped, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001 (see above)
            failed = left.pop(0)
            yield failed, _failed(failed, error, time.monotonic() - begin_s)


def _failed(job: Job, error: Exception, seconds: float) -> JobResult:
    note = f"{type(error).__name__}: {' '.join(str(error).split())}"
    told = JoulediffError(note)
    told.__cause__ = error
    return JobResult(Judgement(job.case.id, "failed", note=note, seconds=seconds), error=told)


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Let the alarm raise TookTooLong."""

    def stop(*_: object) -> None:
        raise TookTooLong(f"it did not end in {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
