"""Programs with a known waste, run here: the finding names its kind, its key and its line."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from energy_builders import gpu_run
from joulediff.archive.snapshot import to_wire
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.recorded_settings import differing_settings
from joulediff.diagnosis.interleaved_recording import Program, recorded, started
from joulediff.frameworks.jobs import Job, JobCost, Variant, VariantCost
from joulediff.frameworks.torch.switches.change import changed
from joulediff.model.diff import Diff
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.finding import Finding
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run, Setting
from joulediff.process.exit_reasons import Stopped
from joulediff.process.interpreter import Interpreter
from joulediff.process.request import Request
from joulediff.pysource.line_trace import LineTrace, Target
from joulediff.pysource.source_files import ProgramSource
from joulediff.session.live_program import LocalProgram
from joulediff.session.record import record
from pairs.common import marked_line
from process_builders import StageListener, is_alive

# Windows are so short that a machine that is busy with something else may hide a waste once.
TRIES = 3
SHORT: dict[str, Any] = {"seconds": 0.2, "wait_s": 0.0, "meter": "estimated", "replay_seconds": 0.5}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulediff.measuring.idle.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.WINDOW_S", 0.1)
    monkeypatch.setattr("joulediff.diagnosis.trials.region_trials.ROUNDS", {})


@dataclass
class Here:
    """A program in this process that trials can run, under settings of its own."""

    bench: LocalProgram
    settings: Mapping[str, Setting]

    def measure_job(self, job: Job, *, window_s: float, as_other: bool = False) -> JobCost:
        with changed(self.settings):
            return self.bench.measure_job(job, window_s=window_s, as_other=as_other)

    def compare_job(self, job: Job) -> JobCost:
        with changed(self.settings):
            return self.bench.compare_job(job)

    def capture(self, settings: Mapping[str, Setting]) -> tuple[str, Run]:
        with changed(self.settings):
            return self.bench.capture(settings)

    def export_tensors(self, ops: Sequence[int], values: Sequence[int], path: Path) -> None:
        self.bench.export_tensors(ops, values, path)

    def import_tensors(self, path: Path) -> None:
        self.bench.import_tensors(path)

    def read_source(self) -> ProgramSource:
        raise JoulediffError("its source cannot be read")

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        raise JoulediffError("it cannot be changed")

    def trace_lines(self, target: Target) -> LineTrace | None:
        with changed(self.settings):
            return self.bench.trace_lines(target)

    def measure_without_sync(self, file: str, line: int) -> VariantCost:
        with changed(self.settings):
            return self.bench.measure_without_sync(file, line)


def compared(pair: Any) -> Diff:
    """Build and record two programs in this process, and compare them while both can be run."""
    found: list[Diff] = []
    options = {**SHORT, "root": Path(pair.__file__).parent}  # of all that is loaded here, these files are the program

    def with_both(a: Here, b: Here) -> None:
        for mine, other in ((a.bench, b.bench), (b.bench, a.bench)):
            mine.take_other(other.run)
        found.append(diagnose(a.bench.run, b.bench.run, live={"a": a, "b": b}, interleaved=True))

    def with_first(bench: LocalProgram) -> None:
        a = Here(bench, switches())
        record(pair.lean(), label="b", then=lambda other: with_both(a, Here(other, switches())), **options)

    with changed(switches()):
        record(pair.wasteful(), label="a", then=with_first, **options)
    return found[0]


def switches() -> dict[str, Setting]:
    """Return the settings of the process that a pair of programs may change."""
    return {"torch.backends.mkldnn.enabled": torch.backends.mkldnn.enabled}


def is_here(finding: Finding, pair: Any) -> bool:
    """Return whether a finding names the line of a pair on its wasteful side."""
    place = finding.cause.location_a if finding.expensive == "a" else None
    return place is not None and (place.file, place.line) == (Path(pair.__file__).name, marked_line(pair.__file__))


def is_expected(finding: Finding, pair: Any) -> bool:
    """Return whether a finding also has the kind, type and key that a pair declares, and a trial of its fix."""
    cause, expected = finding.cause, pair.EXPECTED
    told = (finding.kind, cause.type, str(cause.key).removeprefix("config."))
    is_tried = finding.proof.confirmation is not None and bool(finding.proof.confirmation.trials)
    return told == (expected.kind, expected.type, expected.key) and is_here(finding, pair) and is_tried


# On a CPU the permute before the cross entropy, which costs little itself, is named for its layout or for itself.
JUDGES = {
    "mkldnn": is_expected,
    "gelu": is_expected,
    "contiguous": is_expected,
    "fused": is_expected,
    "cross_entropy": is_here,
}


@pytest.mark.parametrize("name", JUDGES)
def test_a_known_waste_is_found(name: str) -> None:
    pair = import_module(f"pairs.{name}")
    told: list[Any] = []
    for _ in range(TRIES):
        findings = compared(pair).findings
        if any(JUDGES[name](finding, pair) for finding in findings):
            return
        told.append([(finding.expensive, finding.kind, finding.cause) for finding in findings])
    pytest.fail(f"not found in {told}")


# Children that behave as told, whatever they are asked to run.
HEAD = """\
#!{python}
import json, os, sys
from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.archive.codec import to_plain
from joulediff.process.protocol import Commands, Failure, Sender
s, commands, request = Sender(int(sys.argv[-2])), Commands(int(sys.argv[-3])), json.loads(sys.argv[-1])
wire = open({wire!r}, "rb").read()
def say(text):
    with open({log!r}, "a") as log:
        log.write(request["options"]["label"] + " " + text + "\\n")
def stay():
    s.answer({{"built": True}})
    if (command := commands.next()[0])["do"] == "end":
        return
    while command["do"] != "go on":
        say(command["do"])
        s.answer({{"metered": True}})
        if (command := commands.next()[0])["do"] == "end":
            return
    say(command["do"])
    s.run(wire)
    s.answer({{"recorded": True}})
    while (command := commands.next()[0])["do"] != "end":
        say(command["do"])
        s.answer({{"result": to_plain(from_wire(wire).measurement) if command["do"] == "measure" else None}})
def no_room():
    s.failed(Failure("raised", "build() raised CUDA out of memory", out_of_memory=True))
"""
RUN = gpu_run(("gemm", 1e-3, 0))


@pytest.fixture
def programs(tmp_path: Path) -> Callable[[str, str], tuple[dict[Any, Program], list[Run], Path]]:
    """Make two programs from their bodies, with the kept recordings and the log of commands."""

    def make(a: str, b: str) -> tuple[dict[Any, Program], list[Run], Path]:
        (tmp_path / "wire").write_bytes(to_wire(RUN))
        kept: list[Run] = []
        found: dict[Any, Program] = {}
        for side, body in (("a", a), ("b", b)):
            path = tmp_path / f"python_{side}"
            head = HEAD.format(python=sys.executable, wire=str(tmp_path / "wire"), log=str(tmp_path / "log"))
            path.write_text(head + textwrap.dedent(body))
            path.chmod(0o755)
            found[side] = Program(
                Request("p.py", RecordOptions(label=side, seconds=0.4, wait_s=0.0)),
                Interpreter(str(path)),
                lambda each: kept.append(each.run),
            )
        return found, kept, tmp_path / "log"

    return make


ALONE = "no_room() if request['serve'] else (say('alone'), s.run(wire), s.done())"


def test_both_are_measured_in_turns(programs: Any) -> None:
    made, kept, log = programs("stay()", "stay()")
    with recorded(made, {}, listener=ProgressListener()) as found:
        assert found.interleaved
        assert found.live.keys() == {"a", "b"}
    turns = ["a start", "b start", "b again", "a again"]
    assert log.read_text().split("\n")[:-1] == [*turns, "a go on", "b go on", "a take_other", "b take_other"]
    assert kept == [RUN, RUN]


def test_one_program_beside_a_recording(programs: Any) -> None:
    made, _, log = programs("stay()", "stay()")
    with recorded({"b": made["b"]}, {"a": RUN}, listener=ProgressListener()) as found:
        assert (found.runs, found.interleaved, list(found.live)) == ({"a": RUN, "b": RUN}, False, ["b"])
    assert log.read_text().split("\n")[:-1] == ["b start", "b go on", "b take_other"]


@pytest.mark.parametrize(
    ("a", "b", "asked"),
    [
        (ALONE, "stay() if request['serve'] else " + ALONE, ["a alone", "b alone"]),
        ("stay() if request['serve'] else " + ALONE, ALONE, ["a alone", "b alone"]),
        (
            "stay() if request['serve'] else " + ALONE,
            "(s.answer({'built': 1}), commands.next(), no_room()) if request['serve'] else " + ALONE,
            ["a start", "a alone", "b alone"],
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
    with recorded(made, {}, listener=ProgressListener()) as found:
        assert found.runs == {"a": RUN, "b": RUN}
        assert (found.live, found.interleaved) == ({}, False)
    assert log.read_text().split("\n")[:-1] == asked


def test_a_program_without_memory_for_itself_is_reported(programs: Any) -> None:
    made, _, _ = programs("no_room()", "stay()")
    with (
        pytest.raises(ProgramError, match=r"^a: build\(\) raised CUDA out of memory"),
        recorded({"a": made["a"]}, {"b": RUN}, listener=ProgressListener()),
    ):
        pass
    with pytest.raises(ProgramError, match="out of memory"), recorded(made, {}, listener=ProgressListener()):
        pass


def test_a_program_that_dies_names_itself_and_ends_the_other(programs: Any) -> None:
    made, kept, _ = programs("stay()", "s.answer({'built': 1}); commands.next(); os._exit(4)")
    with (
        pytest.raises(ProgramError, match=r"^b: the program ended its process with exit code 4"),
        recorded(made, {}, listener=ProgressListener()),
    ):
        pass
    assert kept == [RUN]


def test_ctrl_c_names_no_program(programs: Any) -> None:
    made, _, _ = programs("s.answer({'built': 1}); commands.next(); s.failed(Failure('stopped', 'stopped'))", "stay()")
    with pytest.raises(Stopped, match=r"^stopped$"), recorded(made, {}, listener=ProgressListener()):
        pass


def test_stages_say_whose_they_are(programs: Any) -> None:
    made, _, _ = programs("s.stage('building the program'); stay()", "s.stage('building the program'); stay()")
    stages: list[str] = []

    class Told(ProgressListener):
        def stage(self, text: str, share: float | None = None) -> None:
            stages.append(text)

    with recorded(made, {}, listener=Told()):
        pass
    assert set(stages) == {"A: building the program", "B: building the program"}


# What a child does first: it is held where that was asked for, and builds.
BEGIN = """
if request["serve"] and request["hold"]:
    say("held")
    s.answer({"ready": True})
    if commands.next()[0]["do"] != "build":
        os._exit(0)
if request["serve"]:
    s.stage("building the program")
    say("builds")
"""
STAY = BEGIN + "stay()\n"
TURNS = ["a start", "b start", "b again", "a again", "a go on", "b go on", "a take_other", "b take_other"]


def lines_of(log: Path) -> list[str]:
    return log.read_text().split("\n")[:-1] if log.exists() else []


@pytest.mark.parametrize(
    ("hold", "begun"), [(False, ["a builds", "b builds"]), (True, ["a builds", "a held", "b builds", "b held"])]
)
def test_programs_are_started_and_held_if_asked(programs: Any, hold: bool, begun: list[str]) -> None:
    made, _, log = programs(STAY, STAY)
    with started(made, hold=hold) as served:
        assert list(served) == ["a", "b"]
        for each in served.values():
            each.wait_built()
        assert sorted(lines_of(log)) == begun
        assert all(is_alive(each.pid) for each in served.values())
    assert not any(is_alive(each.pid) for each in served.values())


def test_programs_that_were_started_end_whatever_happens(programs: Any) -> None:
    made, _, log = programs(STAY, STAY)
    with pytest.raises(ValueError, match="no"), started(made, hold=True) as served:
        raise ValueError("no")
    assert list(served) == ["a", "b"]
    assert not any(is_alive(each.pid) for each in served.values())
    assert not any("builds" in line for line in lines_of(log))


def test_processes_that_were_started_before_are_the_ones_that_are_recorded(programs: Any) -> None:
    made, kept, log = programs(STAY, STAY)
    with started(made, hold=True) as served:
        with recorded(made, {}, listener=ProgressListener(), ahead=served) as found:
            assert found.runs == {"a": RUN, "b": RUN}
            assert (found.interleaved, found.live) == (True, served)
        assert all(is_alive(each.pid) for each in served.values()), "they are ended by who started them"
    assert kept == [RUN, RUN]
    assert sorted(lines_of(log)[:4]) == ["a builds", "a held", "b builds", "b held"], "each is started once"
    assert lines_of(log)[4:] == TURNS


MEET = """
import time
end_s = time.monotonic() + 10
while "{other} builds" not in open({log!r}).read() and time.monotonic() < end_s:
    time.sleep(0.02)
say("alone" if time.monotonic() >= end_s else "meets")
stay()
"""


def test_held_programs_build_at_the_same_time(programs: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    made, _, _ = programs(*(BEGIN + MEET.format(other=other, log=str(log)) for other in "ba"))
    with started(made, hold=True) as served, recorded(made, {}, listener=ProgressListener(), ahead=served):
        pass
    assert {"a meets", "b meets"} <= set(lines_of(log))


def test_stages_of_programs_that_were_held_say_whose_they_are(programs: Any) -> None:
    made, _, _ = programs(STAY, STAY)
    listener = StageListener()
    with started(made, hold=True) as served, recorded(made, {}, listener=listener, ahead=served):
        pass
    assert sorted(listener.stages) == ["A: building the program", "B: building the program"]


def test_held_programs_without_room_for_both_are_recorded_alone(programs: Any) -> None:
    made, _, log = programs(BEGIN + ALONE, BEGIN + "stay() if request['serve'] else " + ALONE)
    with started(made, hold=True) as served, recorded(made, {}, listener=ProgressListener(), ahead=served) as found:
        assert (found.runs, found.live) == ({"a": RUN, "b": RUN}, {})
        assert list(served) == ["a", "b"]
        assert not any(is_alive(each.pid) for each in served.values())
    assert lines_of(log)[-2:] == ["a alone", "b alone"]


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(
    ("begin", "said"),
    [(BEGIN, "build() raised ValueError: no"), ("", "p.py raised ImportError: no")],
    ids=["building", "importing"],
)
def test_a_held_program_that_fails_names_itself(programs: Any, side: str, begin: str, said: str) -> None:
    """Whether it fails when it builds its step, or before it is held."""
    bodies = {"a": STAY, "b": STAY, side: begin + f"s.failed(Failure('raised', {said!r}))"}
    made, _, _ = programs(bodies["a"], bodies["b"])
    with (
        started(made, hold=True) as served,
        pytest.raises(ProgramError, match=rf"^{side}: {re.escape(said)}"),
        recorded(made, {}, listener=ProgressListener(), ahead=served),
    ):
        pass


def test_a_part_of_the_framework_that_one_program_has_not_loaded_is_no_difference() -> None:
    loaded: dict[str, Setting] = {"torch._dynamo.config.disable": False, "torch.num_threads": 2, "env.X": "1"}
    assert differing_settings(loaded, {"torch.num_threads": 1}) == {"torch.num_threads": (2, 1), "env.X": ("1", None)}
