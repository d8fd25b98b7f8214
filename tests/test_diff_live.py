"""Programs with a known waste, run and tried here: the finding names its kind, its key and its line."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from energy_builders import gpu_run
from joulediff.archive import save, to_wire
from joulediff.child.endings import Stopped
from joulediff.child.interpreter import Interpreter
from joulediff.child.request import Request
from joulediff.cli import main
from joulediff.diagnosis.diagnose import diagnose
from joulediff.diagnosis.live import Program, recorded
from joulediff.diffs import Diff
from joulediff.errors import ProgramError
from joulediff.findings import Finding
from joulediff.recorders.walks import Target, Walk
from joulediff.recorders.workshop import Job, Weighed
from joulediff.records import Measurement
from joulediff.runs import Run, Setting
from joulediff.session import record
from joulediff.stability.watch import Watch
from joulediff.workbench import Workbench
from pairs.common import MARK

TESTS = Path(__file__).parent
SHORT: dict[str, Any] = {"seconds": 0.3, "wait_s": 0.0, "meter": "estimated", "replay_seconds": 1.0}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.stability.idle.WINDOW_S", 0.2)
    monkeypatch.setattr("joulediff.diagnosis.trials.WINDOW_S", 0.15)


@dataclass
class Here:
    """A program in this process that can be tried with."""

    bench: Workbench

    def weigh(self, job: Job, *, window_s: float, as_other: bool = False) -> Weighed:
        at = self.bench.other.measurement if as_other and self.bench.other is not None else None
        return self.bench.weigh(job, window_s=window_s, at=at)

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        return self.bench.workshop.capture(settings)

    def walk(self, target: Target) -> Walk | None:
        return self.bench.walk(target)

    def measure_unwaited(self, file: str, line: int) -> Measurement:
        return self.bench.measure_unwaited(file, line, seconds=0.3, wait_s=0.0, watch=Watch())


def compared(first: Callable[[], Any], second: Callable[[], Any]) -> Diff:
    """Record two steps in this process, and compare them while both are there."""
    found: list[Diff] = []

    def with_both(a: Workbench, b: Workbench) -> None:
        for bench, other in ((a, b), (b, a)):
            bench.other = other.run
            bench.workshop.take_other(other.run)
        found.append(diagnose(a.run, b.run, labs={"a": Here(a), "b": Here(b)}, interleaved=True))

    record(first, label="a", then=lambda a: record(second, label="b", then=lambda b: with_both(a, b), **SHORT), **SHORT)
    return found[0]


def check(name: str, kind: str, key: str | None, line: tuple[str, int] | None) -> None:
    """Hold what was found against what a pair expects."""
    pair = import_module(f"pairs.{name}")
    marked = [number for number, text in enumerate(lines_of(name), 1) if text.endswith(MARK)]
    assert (kind, str(key).removeprefix("config.")) == (pair.EXPECTED.kind, pair.EXPECTED.key)
    assert line == (f"{name}.py", marked[0])


def lines_of(name: str) -> list[str]:
    return (TESTS / "pairs" / f"{name}.py").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", ["gelu", "contiguous", "cross_entropy"])
def test_a_known_waste_is_found(name: str) -> None:
    pair = import_module(f"pairs.{name}")
    found: tuple[Finding, ...] = ()
    for _ in range(2):  # a machine that is busy with something else may hide it once
        found = found or compared(pair.wasteful(), pair.lean()).findings
    assert found
    first = found[0]
    assert (first.expensive, first.cause.type) == ("a", pair.EXPECTED.type)
    place = first.cause.location_a
    check(name, first.kind, first.cause.key, None if place is None else (Path(place.file).name, place.line))
    assert first.confirmation is not None and first.confirmation.trials, "its fix was tried"


def test_a_program_against_a_recording_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = import_module("pairs.mkldnn")
    enabled = torch.backends.mkldnn.enabled
    save(record(pair.lean(), label="lean", root=TESTS.parent, **SHORT), tmp_path / "lean.jd")
    assert torch.backends.mkldnn.enabled == enabled
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    program = f"{TESTS}/pairs/mkldnn.py:wasteful"
    options = ("--seconds", "0.3", "--replay-seconds", "1", "--wait", "0", "--meter", "estimated")
    with pytest.raises(SystemExit) as ended:
        main(["diff", program, f"{tmp_path}/lean.jd", *options, "--confirm", "--json", "-"])
    out, err = capfd.readouterr()
    assert not ended.value.code, err
    first = json.loads(out)["findings"][0]
    place = first["cause"]["location_a"]
    check("mkldnn", first["kind"], first["cause"]["key"], (Path(place["file"]).name, place["line"]))
    whole = first["confirmation"]["whole"]
    assert whole["change"] == "torch.backends.mkldnn.enabled = True"
    assert whole["note"] is None
    assert whole["saved_share"] > 0.2
    assert whole["difference"] < 1e-3


# Children that behave as told, whatever they are asked to run.
HEAD = """\
#!{python}
import json, os, sys
from joulediff.archive import from_wire, to_wire
from joulediff.archive.plain import to_plain
from joulediff.child.pipe import Commands, Failure, Sender
s, commands, request = Sender(int(sys.argv[-2])), Commands(int(sys.argv[-3])), json.loads(sys.argv[-1])
wire = open({wire!r}, "rb").read()
def say(text):
    with open({log!r}, "a") as log:
        log.write(request["label"] + " " + text + "\\n")
def stay():
    s.answer({{"built": True}})
    say(commands.next()[0]["do"])
    s.run(wire)
    s.answer({{"recorded": True}})
    while (command := commands.next()[0])["do"] != "end":
        say(command["do"])
        s.answer({{"result": to_plain(from_wire(wire).measurement) if command["do"] == "measure" else None}})
def no_room():
    s.failed(Failure("raised", "build() raised CUDA out of memory"))
"""
RUN = gpu_run(("gemm", 1e-3, 0))


@pytest.fixture
def programs(tmp_path: Path) -> Callable[[str, str], tuple[dict[Any, Program], list[Run], Path]]:
    """Makes two programs of bodies, with what is kept of them and the log of what they were asked."""

    def make(a: str, b: str) -> tuple[dict[Any, Program], list[Run], Path]:
        (tmp_path / "wire").write_bytes(to_wire(RUN))
        kept: list[Run] = []
        found: dict[Any, Program] = {}
        for side, body in (("a", a), ("b", b)):
            path = tmp_path / f"python_{side}"
            head = HEAD.format(python=sys.executable, wire=str(tmp_path / "wire"), log=str(tmp_path / "log"))
            path.write_text(head + textwrap.dedent(body))
            path.chmod(0o755)
            found[side] = Program(Request("p.py", side, 0.4, 0.0), Interpreter(str(path)), kept.append)
        return found, kept, tmp_path / "log"

    return make


ALONE = "no_room() if request['serve'] else (say('alone'), s.run(wire), s.done())"


def test_both_are_measured_in_turns(programs: Any) -> None:
    made, kept, log = programs("stay()", "stay()")
    with recorded(made, {}, watch=Watch()) as found:
        assert found.interleaved
        assert found.labs.keys() == {"a", "b"}
        assert RUN.measurement is not None and found.runs["a"].measurement is not None
        assert found.runs["a"].measurement.steps == 2 * RUN.measurement.steps
    assert log.read_text().split("\n")[:-1] == ["a start", "b start", "b measure", "a measure", "a other", "b other"]
    assert len(kept) == 4 and kept[-1] == found.runs["a"]


def test_one_program_beside_a_recording(programs: Any) -> None:
    made, _, log = programs("stay()", "stay()")
    with recorded({"b": made["b"]}, {"a": RUN}, watch=Watch()) as found:
        assert (found.runs, found.interleaved, list(found.labs)) == ({"a": RUN, "b": RUN}, False, ["b"])
    assert log.read_text().split("\n")[:-1] == ["b start", "b other"]


@pytest.mark.parametrize(
    ("a", "b", "asked"),
    [
        (ALONE, "stay() if request['serve'] else " + ALONE, ["a alone", "b alone"]),
        ("stay() if request['serve'] else " + ALONE, ALONE, ["a alone", "b alone"]),
        (
            "stay() if request['serve'] else " + ALONE,
            "(s.answer({'built': 1}), commands.next(), no_room()) if request['serve'] else " + ALONE,
            ["a start", "b alone"],
        ),
        (
            "(s.answer({'built': 1}), commands.next(), no_room()) if request['serve'] else " + ALONE,
            "stay() if request['serve'] else " + ALONE,
            ["a alone", "b alone"],
        ),
    ],
)
def test_programs_without_room_for_both_are_recorded_alone(programs: Any, a: str, b: str, asked: list[str]) -> None:
    made, _, log = programs(a, b)
    with recorded(made, {}, watch=Watch()) as found:
        assert found.runs == {"a": RUN, "b": RUN}
        assert (found.labs, found.interleaved) == ({}, False)
    assert log.read_text().split("\n")[:-1] == asked


def test_a_program_without_room_for_itself_is_told(programs: Any) -> None:
    made, _, _ = programs("no_room()", "stay()")
    with (
        pytest.raises(ProgramError, match=r"^a: build\(\) raised CUDA out of memory"),
        recorded({"a": made["a"]}, {"b": RUN}, watch=Watch()),
    ):
        pass
    with pytest.raises(ProgramError, match="out of memory"), recorded(made, {}, watch=Watch()):
        pass


def test_a_program_that_dies_names_itself_and_ends_the_other(programs: Any) -> None:
    made, kept, _ = programs("stay()", "s.answer({'built': 1}); commands.next(); os._exit(4)")
    with (
        pytest.raises(ProgramError, match="^b: the program ended its process with exit code 4"),
        recorded(made, {}, watch=Watch()),
    ):
        pass
    assert kept == [RUN]


def test_ctrl_c_names_no_program(programs: Any) -> None:
    made, _, _ = programs("s.answer({'built': 1}); commands.next(); s.failed(Failure('stopped', 'stopped'))", "stay()")
    with pytest.raises(Stopped, match="^stopped$"), recorded(made, {}, watch=Watch()):
        pass


def test_stages_say_whose_they_are(programs: Any) -> None:
    made, _, _ = programs("s.stage('building the program'); stay()", "s.stage('building the program'); stay()")
    stages: list[str] = []

    class Told(Watch):
        def stage(self, text: str, share: float | None = None) -> None:
            stages.append(text)

    with recorded(made, {}, watch=Told()):
        pass
    assert set(stages) == {"A: building the program", "B: building the program"}
    assert replace(RUN, label="x") != RUN
