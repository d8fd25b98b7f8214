"""The next case's processes import while a case is replayed; no process is left behind, also after an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from case_builders import GELU, write_case
from diff_builders import gpt2_diff
from joulediff.archive.writer import save
from joulediff.cases.run import ROOMY, JobQueue, StartsNext
from joulediff.cli import main
from joulediff.diagnosis import interleaved_recording
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.process.interpreter import Interpreter
from joulediff.process.request import Request
from process_builders import StageListener
from run_builders import gpt2_run


@dataclass(eq=False)
class Job:
    """A case to run, as far as the queue looks at it."""

    name: str
    device: str = "cuda"

    def programs(self) -> str:
        return f"programs of {self.name}"


class Processes:
    """Replaces the start of processes: a log of starts and ends."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def started(self, programs: Any, *, hold: bool) -> Started:
        assert hold, "a program that builds its step beside a measurement would disturb it"
        return Started(programs if isinstance(programs, str) else Path(programs["a"].request.program).parent.name, self)


@dataclass
class Started:
    """The processes of one case. They are ended by nothing but the end of their context."""

    name: str
    all: Processes

    def __enter__(self) -> dict[str, str]:
        self.all.log.append(f"start {self.name}")
        return {"a": self.name, "b": self.name}

    def __exit__(self, *_: object) -> None:
        self.all.log.append(f"end {self.name}")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes()
    monkeypatch.setattr("joulediff.diagnosis.interleaved_recording.started", found.started)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(ROOMY)), raising=False)
    return found


def queue_of(*jobs: Any) -> JobQueue:
    return JobQueue(jobs)


A: Any = Job("a")
B: Any = Job("b")
C: Any = Job("c")
ON_CPU: Any = Job("d", "cpu")
STARTED, ENDED = "start programs of b", "end programs of b"


def test_the_case_that_comes_after_is_started_and_used_once(processes: Processes) -> None:
    with queue_of(A, B, C) as queue:
        with queue.processes_of(A) as ahead:
            assert ahead is None
            queue.start_after(A)
            assert processes.log == [STARTED]
        assert processes.log == [STARTED], "they outlive the case before"
        with queue.processes_of(B) as ahead:
            assert ahead == {"a": "programs of b", "b": "programs of b"}
        assert processes.log == [STARTED, ENDED]
        with queue.processes_of(C) as ahead:
            assert ahead is None
    assert processes.log == [STARTED, ENDED]


def test_processes_of_a_case_that_does_not_run_are_ended(processes: Processes) -> None:
    with queue_of(A, B, C) as queue:
        queue.start_after(A)
        with queue.processes_of(C) as ahead:
            assert ahead is None
        assert processes.log == [STARTED, ENDED]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("during", [A, B], ids=lambda job: job.name)
def test_processes_end_with_a_run_that_breaks_off(
    processes: Processes, error: type[BaseException], during: Any
) -> None:
    with pytest.raises(error), queue_of(A, B) as queue:
        with queue.processes_of(A):
            queue.start_after(A)
            if during is A:
                raise error
        with queue.processes_of(B):
            raise error
    assert processes.log == [STARTED, ENDED]


@pytest.mark.parametrize(
    ("jobs", "after", "cores"),
    [
        ((A, B), A, ROOMY - 1),
        ((A, B), B, ROOMY),
        ((A, ON_CPU), A, ROOMY),
        ((ON_CPU, B), ON_CPU, ROOMY),
    ],
    ids=["few cores", "the last one", "the next on the CPU", "this one on the CPU"],
)
def test_nothing_is_started_if_it_would_disturb(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, jobs: tuple[Any, ...], after: Any, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    with queue_of(*jobs) as queue:
        queue.start_after(after)
    assert processes.log == []


def test_nothing_is_started_on_unknown_cores(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    with queue_of(A, B) as queue:
        queue.start_after(A)
    assert processes.log == []


def test_the_next_one_is_started_when_both_programs_are_metered(processes: Processes) -> None:
    shown = StageListener()
    with queue_of(A, B) as queue:
        listener = StartsNext(shown, queue, A)
        for text in ("A: metered 1/5: measuring", "B: metered 1/5: measuring"):
            listener.stage(text, 0.5)
        assert processes.log == []
        listener.metered()
        assert processes.log == [STARTED]
        listener.stage("A: traced 3/5: running the step")
    assert processes.log == [STARTED, ENDED]
    assert len(shown.stages) == 3


class Remote:
    """A program in a separate process, with the methods that recording in alternation needs."""

    pid, is_live, measurement = 1, True, None

    def __init__(self, log: list[str], *, fails: bool) -> None:
        self.log, self._fails = log, fails

    def set_listener(self, listener: ProgressListener) -> None: ...
    def begin(self) -> None: ...
    def wait_built(self) -> None: ...
    def close(self) -> None: ...
    def take_other(self, run: Any) -> None: ...

    def meter(self, idle_pids: list[int], *, idle: Any = None) -> None:
        self.log.append("meter")
        if self._fails:
            error = JoulediffError("CUDA out of memory")
            error.out_of_memory = True
            raise error

    def meter_again(self, seconds: float) -> None:
        self.log.append("meter")

    def record(self, known: Any = None) -> Any:
        self.log.append("record")
        return gpt2_run()


@pytest.mark.parametrize(
    ("fails", "log"),
    [(False, ["meter", "meter", "meter", "meter", "metered", "record", "record"]), (True, ["meter", "alone", "alone"])],
    ids=["in alternation", "no memory for both: each is metered again alone"],
)
def test_programs_are_metered_when_all_their_turns_are_over(
    monkeypatch: pytest.MonkeyPatch, fails: bool, log: list[str]
) -> None:
    found: list[str] = []

    class Listener(ProgressListener):
        def metered(self) -> None:
            found.append("metered")

    def record_alone(*_: Any, **__: Any) -> Any:
        found.append("alone")
        return gpt2_run()

    monkeypatch.setattr(interleaved_recording, "record_in_process", record_alone)
    request = Request("p.py", RecordOptions())
    program = interleaved_recording.Program(request, Interpreter("python"), lambda _: None)
    remotes: Any = {name: Remote(found, fails=fails) for name in ("a", "b")}
    with interleaved_recording.recorded({"a": program, "b": program}, {}, listener=Listener(), ahead=remotes):
        assert found == log


Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes) -> Run:
    """Runs three cases without programs; the log has the processes that each case was given. One case may fail."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOULEDIFF_CASES", "lib")
    for name in ("a", "b", "c"):
        write_case(Path("lib") / name, **GELU)

    def make(*words: str, breaks: Mapping[str, BaseException] | None = None) -> tuple[int, list[str]]:
        def run_case(case: Any, *, folder: Path, listener: ProgressListener, ahead: Any, **_: Any) -> Any:
            processes.log.append(f"run {case.id} with {'its own' if ahead is None else ahead['a']}")
            listener.stage("A: metered 1/5: measuring")
            listener.metered()
            listener.stage("A: traced 3/5: running the step")
            if breaks and case.id in breaks:
                raise breaks[case.id]
            folder.mkdir(parents=True, exist_ok=True)
            save(gpt2_run(), folder / "a.jd")
            return gpt2_diff(), {"a": folder / "a.jd"}

        monkeypatch.setattr("joulediff.cases.run.run_case", run_case)
        with pytest.raises(SystemExit) as ended:
            main(["cases", "run", *words])
        sys.stdout.flush()
        return int(ended.value.code or 0), processes.log

    return make


ALL = [
    "run a with its own",
    "start b",
    "run b with b",
    "start c",
    "end b",
    "run c with c",
    "end c",
]


@pytest.mark.live  # the folder of the recordings is removed by a process of its own
def test_each_case_but_the_first_has_processes_that_wait_for_it(run: Run) -> None:
    assert run("--all", "--device", "cuda") == (0, ALL)


@pytest.mark.live  # the folder of the recordings is removed by a process of its own
def test_on_a_cpu_each_case_starts_its_own(run: Run) -> None:
    code, log = run("--all", "--device", "cpu")
    assert code == 0
    assert log == [f"run {name} with its own" for name in "abc"]


@pytest.mark.live  # the folder of the recordings is removed by a process of its own
def test_a_case_that_cannot_run_is_passed_over(run: Run) -> None:
    write_case(Path("lib/b"), needs={"nobody-has-this": "1"})
    _, log = run("--all", "--device", "cuda")
    assert log == ["run a with its own", "start c", "run c with c", "end c"]


@pytest.mark.live  # the folder of the recordings is removed by a process of its own
def test_a_case_that_fails_leaves_the_next_ones_processes(run: Run) -> None:
    code, log = run("--all", "--device", "cuda", breaks={"a": JoulediffError("no"), "b": JoulediffError("no")})
    assert (code, log) == (3, ALL)


@pytest.mark.live  # the folder of the recordings is removed by a process of its own
def test_processes_that_cannot_be_started_are_no_matter_of_the_case_before(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise JoulediffError("cannot start python (Cannot allocate memory)")

    monkeypatch.setattr("joulediff.diagnosis.interleaved_recording.started", fail)
    assert run("--all", "--device", "cuda") == (0, [f"run {name} with its own" for name in "abc"])


@pytest.mark.live
@pytest.mark.parametrize(("name", "count"), [("a", 2), ("b", 4)])
def test_ctrl_c_ends_all_that_was_started(run: Run, name: str, count: int) -> None:
    code, log = run("--all", "--device", "cuda", breaks={name: KeyboardInterrupt()})
    assert code == 130
    assert log[:count] == ALL[:count]
    begun = sorted(line.removeprefix("start ") for line in log if line.startswith("start"))
    ended = sorted(line.removeprefix("end ") for line in log if line.startswith("end"))
    assert begun == ended and begun
    assert not any(line.startswith("run") for line in log[count:])
