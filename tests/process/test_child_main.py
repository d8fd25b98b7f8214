"""The child's side of a recording: what it says about an end, in which words."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from cli_builders import forget_programs, write_program
from joulediff.model.errors import JoulediffError, NotCovered
from joulediff.model.options import RecordOptions
from joulediff.model.run import PassName, Run
from joulediff.process.main import _explain, _load_frameworks, _load_ourselves, _record, _stop, _Teller
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
def teller(ends: tuple[int, int]) -> _Teller:
    return _Teller(Sender(ends[1]))


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_stage_has_its_pass(ends: tuple[int, int], teller: _Teller) -> None:
    teller.stage("building the program")
    teller.pass_begins("metered")
    teller.stage("metered 1/4: measuring", 0.4)
    teller.pass_begins("captured")
    teller.stage("captured 3/4: running the step")
    teller.stage("something else: now")
    found: list[Message] = list(Inbox().feed(os.read(ends[0], 4096)))
    assert found == [
        Stage("building the program"),
        Stage("metered 1/4: measuring", 0.4, "metered"),
        Stage("captured 3/4: running the step", None, "captured"),
        Stage("something else: now", None, "captured"),
    ]


def test_what_the_step_raised_is_its_own(teller: _Teller) -> None:
    error = raised(ValueError("no"))
    teller.failed(error, 7)
    found = _explain(error, teller)
    assert found.sort == "raised"
    assert re.fullmatch(r"the step raised ValueError: no \(test_child_main.py:\d+\) in its call number 7", found.what)
    assert "ValueError: no" in found.trace


@pytest.mark.parametrize("name", ["metered", "traced", "captured"])
def test_a_call_is_counted_in_its_pass(teller: _Teller, name: PassName) -> None:
    error = raised(ValueError("no"))
    teller.pass_begins("metered")
    teller.pass_begins(name)
    teller.failed(error, 3)
    assert _explain(error, teller).what.endswith(f" in call number 3 of the {name} pass")


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")])
@pytest.mark.parametrize("place", ["build", "step"])
def test_out_of_memory_is_advised(teller: _Teller, error: BaseException, place: str) -> None:
    if place == "step":
        teller.failed(raised(error), 1)
        found = _explain(error, teller)
    else:
        failed = UserCodeFailed("build() in x.py raised MemoryError")
        failed.__cause__ = error
        found = _explain(failed, teller)
    assert found.sort == "raised"
    assert found.fix is not None
    assert "it ran out of memory" in found.fix
    assert found.out_of_memory


@pytest.mark.parametrize(
    ("text", "is_one"), [("CUDA error: out of memory", True), ("CUDA error: an illegal memory access", False)]
)
def test_a_library_that_says_only_in_words_that_memory_ran_out(teller: _Teller, text: str, is_one: bool) -> None:
    error = raised(RuntimeError(text))
    teller.failed(error, 1)
    assert _explain(error, teller).out_of_memory is is_one


def test_errors_of_ours_keep_their_advice_and_their_code(teller: _Teller) -> None:
    found = _explain(NotCovered("no meter gave a number", fix="joulediff doctor"), teller)
    assert (found.sort, found.what, found.fix, found.exit_code) == (
        "error",
        "no meter gave a number",
        "joulediff doctor",
        2,
    )


def test_anything_else_is_a_fault(teller: _Teller) -> None:
    assert _explain(raised(LookupError("a hole")), teller).sort == "fault"


def test_a_fault_is_not_blamed_on_the_step_that_ran_through_it(teller: _Teller) -> None:
    with pytest.raises(TypeError) as caught:
        list(Inbox().feed(None))  # type: ignore[arg-type]
    teller.failed(caught.value, 1)
    assert _explain(caught.value, teller).sort == "fault"


def test_ctrl_c_is_a_stop_even_in_the_step(teller: _Teller) -> None:
    error = raised(KeyboardInterrupt())
    teller.failed(error, 3)
    assert _explain(error, teller).sort == "stopped"


def test_ctrl_c_counts_once() -> None:
    before = signal.signal(signal.SIGINT, _stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_environment_that_cannot_run_us_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(JoulediffError) as caught:
        _load_ourselves()
    assert "joulediff cannot run under" in caught.value.what
    assert "-m pip install --upgrade numpy psutil scipy" in str(caught.value.fix)


class Parent:
    """Stands for the parent's end of the commands: gives some, and notes what was there when each was asked for."""

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
    """Starts in a folder with a program; what is recorded there is noted, and the profiler is not loaded."""
    found: list[object] = []

    def record_step(step: Callable[[], object], _: RecordOptions, **__: object) -> Run:
        found.append(step())
        return RUN

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("joulediff.session.record.record_step", record_step)
    monkeypatch.setattr("joulediff.process.main._load_frameworks", lambda: found.append("frameworks"))
    write_program(tmp_path / "p.py", PROGRAM)
    before = set(sys.modules)
    yield found
    forget_programs(tmp_path, before)


def test_a_held_program_is_loaded_and_builds_when_told(
    recordings: list[object], teller: _Teller, tmp_path: Path
) -> None:
    parent = Parent(tmp_path, "build", "start")
    _record(replace(REQUEST, serve=True, hold=True), teller, parent)  # type: ignore[arg-type]
    assert parent.seen == [{"is_loaded"}, {"is_loaded", "is_built"}]
    assert recordings == ["frameworks", 42]
    assert teller.sent is not None and teller.sent.run is RUN


def test_a_held_program_that_is_not_wanted_builds_nothing(
    recordings: list[object], teller: _Teller, tmp_path: Path
) -> None:
    parent = Parent(tmp_path, "end")
    with pytest.raises(Disconnected):
        _record(replace(REQUEST, serve=True, hold=True), teller, parent)  # type: ignore[arg-type]
    assert parent.seen == [{"is_loaded"}] and not (tmp_path / "is_built").exists()
    assert recordings == ["frameworks"]


@pytest.mark.parametrize("serve", [False, True])
def test_a_program_that_is_not_held_builds_at_once(
    recordings: list[object], teller: _Teller, tmp_path: Path, serve: bool
) -> None:
    parent = Parent(tmp_path, "start")
    _record(replace(REQUEST, serve=serve), teller, parent if serve else None)  # type: ignore[arg-type]
    assert parent.seen == ([{"is_loaded", "is_built"}] if serve else [])
    assert recordings == [42], "nothing is loaded ahead of need"


def test_nobody_is_there_to_tell_a_program_that_is_recorded_alone(recordings: list[object], teller: _Teller) -> None:
    _record(replace(REQUEST, hold=True), teller, None)
    assert recordings == [42]


@pytest.mark.parametrize(("loaded", "expected"), [(True, [1]), (False, [])])
def test_what_recording_needs_of_a_framework_is_loaded_where_the_program_uses_it(
    monkeypatch: pytest.MonkeyPatch, loaded: bool, expected: list[int]
) -> None:
    called: list[int] = []
    monkeypatch.setattr("joulediff.frameworks.torch.trace.trace.load_profiler", lambda: called.append(1))
    if loaded:
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    _load_frameworks()
    assert called == expected
