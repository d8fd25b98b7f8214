"""The child's side of a recording: its reports of progress and of failures."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli_builders import forget_programs, write_program
from joulediff.model.errors import JoulediffError, NotCovered
from joulediff.model.options import RecordOptions
from joulediff.model.run import PassName, Run
from joulediff.process.main import ProgressSender, _explain, _load_joulediff, _raise_once, _record
from joulediff.process.protocol import Disconnected, Inbox, Message, Sender, Stage
from joulediff.process.request import Request
from joulediff.pysource.programs import UserCodeFailed

REQUEST = Request("p.py", RecordOptions(label="p", seconds=0.1, wait_s=0.0))


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    pair = os.pipe()
    yield pair
    for fd in pair:
        os.close(fd)


@pytest.fixture
def progress(ends: tuple[int, int]) -> ProgressSender:
    return ProgressSender(Sender(ends[1]))


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_stage_has_its_pass(ends: tuple[int, int], progress: ProgressSender) -> None:
    progress.stage("building the program")
    progress.pass_begins("metered")
    progress.stage("metered 1/5: measuring", 0.4)
    progress.pass_begins("captured")
    progress.stage("captured 4/5: running the step")
    progress.stage("something else: now")
    found: list[Message] = list(Inbox().feed(os.read(ends[0], 4096)))
    assert found == [
        Stage("building the program"),
        Stage("metered 1/5: measuring", 0.4, "metered"),
        Stage("captured 4/5: running the step", None, "captured"),
        Stage("something else: now", None, "captured"),
    ]


def test_an_exception_of_the_step_is_reported_as_such(progress: ProgressSender) -> None:
    error = raised(ValueError("no"))
    progress.failed(error, 7)
    found = _explain(error, progress)
    assert found.kind == "raised"
    assert re.fullmatch(r"the step raised ValueError: no \(test_main.py:\d+\) in its call number 7", found.what)
    assert "ValueError: no" in found.trace


@pytest.mark.parametrize("name", ["metered", "traced", "captured"])
def test_a_call_is_counted_in_its_pass(progress: ProgressSender, name: PassName) -> None:
    error = raised(ValueError("no"))
    progress.pass_begins("metered")
    progress.pass_begins(name)
    progress.failed(error, 3)
    assert _explain(error, progress).what.endswith(f" in call number 3 of the {name} pass")


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")])
@pytest.mark.parametrize("place", ["build", "step"])
def test_out_of_memory_is_advised(progress: ProgressSender, error: BaseException, place: str) -> None:
    if place == "step":
        progress.failed(raised(error), 1)
        found = _explain(error, progress)
    else:
        failed = UserCodeFailed("build() in x.py raised MemoryError")
        failed.__cause__ = error
        found = _explain(failed, progress)
    assert found.kind == "raised"
    assert found.fix is not None
    assert "it ran out of memory" in found.fix
    assert found.out_of_memory


@pytest.mark.parametrize(
    ("text", "is_one"), [("CUDA error: out of memory", True), ("CUDA error: an illegal memory access", False)]
)
def test_a_library_that_reports_out_of_memory_in_text(progress: ProgressSender, text: str, is_one: bool) -> None:
    error = raised(RuntimeError(text))
    progress.failed(error, 1)
    assert _explain(error, progress).out_of_memory is is_one


def test_errors_of_ours_keep_their_advice_and_their_code(progress: ProgressSender) -> None:
    found = _explain(NotCovered("no meter gave a number", fix="joulediff doctor"), progress)
    assert (found.kind, found.what, found.fix, found.exit_code) == (
        "error",
        "no meter gave a number",
        "joulediff doctor",
        2,
    )


def test_anything_else_is_a_fault(progress: ProgressSender) -> None:
    assert _explain(raised(LookupError("a hole")), progress).kind == "fault"


def test_a_fault_is_not_blamed_on_the_step_that_ran_through_it(progress: ProgressSender) -> None:
    with pytest.raises(TypeError) as caught:
        list(Inbox().feed(None))  # type: ignore[arg-type]
    progress.failed(caught.value, 1)
    assert _explain(caught.value, progress).kind == "fault"


def test_ctrl_c_is_a_stop_even_in_the_step(progress: ProgressSender) -> None:
    error = raised(KeyboardInterrupt())
    progress.failed(error, 3)
    assert _explain(error, progress).kind == "stopped"


def test_ctrl_c_counts_once() -> None:
    before = signal.signal(signal.SIGINT, _raise_once)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_error_for_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(JoulediffError) as caught:
        _load_joulediff()
    assert "joulediff cannot run under" in caught.value.what
    assert "-m pip install --upgrade numpy psutil scipy" in str(caught.value.fix)


class Parent:
    """The parent's end of the commands: sends the given ones, and logs the files in the folder before each."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._folder, self._words = folder, list(words)
        self.seen: list[set[str]] = []

    def next(self) -> tuple[dict[str, object], bytes]:
        self.seen.append({path.name for path in self._folder.glob("is_*")})
        if not self._words:
            raise Disconnected
        return {"do": self._words.pop(0)}, b""


PROGRAM = """
    from pathlib import Path
    Path("is_loaded").touch()
    def build():
        Path("is_built").touch()
        return lambda: 42
"""
RUN = Run("p", "p.py", "2026-01-01T00:00:00+00:00", "0.1.0")


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Runs in a folder with a program, and logs each recording."""
    found: list[object] = []

    def record_step(step: Callable[[], object], _: RecordOptions, **__: object) -> Run:
        found.append(step())
        return RUN

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("joulediff.session.record.record_step", record_step)
    write_program(tmp_path / "p.py", PROGRAM)
    before = set(sys.modules)
    yield found
    forget_programs(tmp_path, before)


def test_a_held_program_is_loaded_and_builds_on_command(
    recordings: list[object], progress: ProgressSender, tmp_path: Path
) -> None:
    parent = Parent(tmp_path, "build", "start")
    _record(replace(REQUEST, serve=True, hold=True), progress, parent)  # type: ignore[arg-type]
    assert parent.seen == [{"is_loaded"}, {"is_loaded", "is_built"}]
    assert recordings == [42]
    assert progress.sent is not None and progress.sent.run is RUN


def test_a_held_program_that_is_not_wanted_builds_nothing(
    recordings: list[object], progress: ProgressSender, tmp_path: Path
) -> None:
    parent = Parent(tmp_path, "end")
    with pytest.raises(Disconnected):
        _record(replace(REQUEST, serve=True, hold=True), progress, parent)  # type: ignore[arg-type]
    assert parent.seen == [{"is_loaded"}] and not (tmp_path / "is_built").exists()
    assert recordings == []


@pytest.mark.parametrize("serve", [False, True])
def test_a_program_that_is_not_held_builds_at_once(
    recordings: list[object], progress: ProgressSender, tmp_path: Path, serve: bool
) -> None:
    parent = Parent(tmp_path, "start")
    _record(replace(REQUEST, serve=serve), progress, parent if serve else None)  # type: ignore[arg-type]
    assert parent.seen == ([{"is_loaded", "is_built"}] if serve else [])
    assert recordings == [42], "nothing is loaded ahead of need"


def test_a_program_recorded_alone_is_not_held(recordings: list[object], progress: ProgressSender) -> None:
    _record(replace(REQUEST, hold=True), progress, None)
    assert recordings == [42]
