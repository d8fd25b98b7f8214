"""Jobs one after the other: a job that fails, in whatever way, or takes too long, fails alone."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from case_builders import make_case
from joulediff.cases import run_all as module
from joulediff.cases.judge import Judgement
from joulediff.cases.run import Job, JobOptions, JobResult, make_jobs
from joulediff.cases.run_all import run_all
from joulediff.model.options import CASE_OPTIONS
from joulediff.model.progress import ProgressListener

OPTIONS = JobOptions(CASE_OPTIONS, "cpu", None, confirm=False)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    cases = [make_case(tmp_path / "lib" / name) for name in ("a", "b", "c")]
    return make_jobs(cases, OPTIONS, tmp_path / "kept")


def run_with(monkeypatch: pytest.MonkeyPatch, jobs: list[Job], middle: Any, limit_s: int = 60) -> list[JobResult]:
    """Run jobs of which the second one calls `middle`; return the results, and check the numbers of the jobs."""
    numbers = []

    def run_jobs(left: Any, open_listener: Any) -> Iterator[tuple[Job, JobResult]]:
        for number, job in enumerate(left, start=1):
            open_listener(number, job)
            if job.case.id == "b":
                middle()
            yield job, JobResult(Judgement(job.case.id, "missed"))

    def open_listener(number: int, job: Job) -> ProgressListener:
        numbers.append((number, job.case.id))
        return ProgressListener()

    monkeypatch.setattr(module, "run_jobs", run_jobs)
    found = [result for _, result in run_all(jobs, open_listener, limit_s=limit_s)]
    assert numbers == [(1, "a"), (2, "b"), (3, "c")]
    return found


def test_an_error_of_the_program_itself_stops_no_other(monkeypatch: pytest.MonkeyPatch, jobs: list[Job]) -> None:
    def divide() -> None:
        raise ZeroDivisionError("in the  diagnosis")

    found = run_with(monkeypatch, jobs, divide)
    assert [each.judgement.outcome for each in found] == ["missed", "failed", "missed"]
    assert found[1].judgement.note == "ZeroDivisionError: in the diagnosis"
    assert found[1].judgement.seconds is not None
    assert isinstance(found[1].error, Exception) and isinstance(found[1].error.__cause__, ZeroDivisionError)


def test_a_job_that_hangs_fails_and_stops_no_other(monkeypatch: pytest.MonkeyPatch, jobs: list[Job]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    found = run_with(monkeypatch, jobs, lambda: time.sleep(30), limit_s=1)
    assert [each.judgement.outcome for each in found] == ["missed", "failed", "missed"]
    assert found[1].judgement.note == "TookTooLong: it did not end in 1 s"
    assert signal.getsignal(signal.SIGALRM) == before


def test_ctrl_c_stops_all(monkeypatch: pytest.MonkeyPatch, jobs: list[Job]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_with(monkeypatch, jobs, interrupt)
