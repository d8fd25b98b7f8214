"""The verdict of a gate: by the interval of B over A, and never by one recording or one pair of processes alone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from diff_builders import energy, gpt2_diff, side
from fakes import FakeClock
from joulediff.diagnosis.gate.judge import Round, judge
from joulediff.diagnosis.gate.settle import LEAST_FOURS, ROUNDS_TO_GIVE_UP, Rounds
from joulediff.diagnosis.interleaved_recording import Program
from joulediff.model.diff import Diff, StepCost
from joulediff.model.energy import Energy, Source
from joulediff.model.errors import MeterFailed, ProgramError
from joulediff.model.measurement import Quiet
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.process.interpreter import Interpreter
from joulediff.process.request import Request

LIMIT = 0.05


def recordings(b_over_a: float, *, half: float = 0.01, source: Source = "metered", **changes: Any) -> Diff:
    """Return the diff of two recordings with an interval of `half` each, measured for 4 s."""
    steps = (StepCost(energy(joules, half, source), 0.01, 8, 400) for joules in (100.0, 100.0 * b_over_a))
    a, b = (side(label, 1.0, step=step) for label, step in zip(("base", "new"), steps, strict=True))
    return gpt2_diff(**{"a": a, "b": b, **changes})


def rounds(*percent: float, spread: float = 0.0, spent_s: float = 10.0) -> list[Round]:
    """Return rounds with these extra costs of B, each of four times four turns."""
    signs = (-1, 1, -1, 1)
    return [Round(tuple(math.log(1 + p / 100) + sign * spread for sign in signs), spent_s) for p in percent]


@pytest.mark.parametrize(
    ("b_over_a", "limit", "verdict"),
    [(2.0, 0.05, "failed"), (1.2, 0.05, "failed"), (1.0, 0.10, "passed"), (0.8, 0.05, "passed"), (0.5, 0.0, "passed")],
)
def test_recordings_that_are_clear(b_over_a: float, limit: float, verdict: str) -> None:
    gate = judge(recordings(b_over_a), limit)
    assert (gate.verdict, gate.reason, gate.settles_s, gate.rounds) == (verdict, None, None, 0)
    assert gate.ratio is not None and gate.ratio.value == pytest.approx(b_over_a)
    assert gate.ratio.low < b_over_a < gate.ratio.high


def test_two_good_recordings_do_not_settle_a_limit_within_their_spread() -> None:
    for b_over_a in (1.0, 1.04, 1.05, 1.06, 1.1):
        gate = judge(recordings(b_over_a, half=0.001), LIMIT)
        assert (gate.verdict, gate.reason, gate.settles_s) == ("cannot tell", "recordings", None)


def test_wide_recordings_say_for_how_long_to_record() -> None:
    gate = judge(recordings(1.0, half=0.08), 0.12)
    assert (gate.verdict, gate.reason) == ("cannot tell", "too noisy")
    assert gate.settles_s is not None and 4.0 < gate.settles_s < 60.0
    narrower = 0.08 * math.sqrt(4.0 / gate.settles_s)
    assert judge(recordings(1.0, half=narrower * 0.98), 0.12).verdict == "passed"


def test_estimates_spread_more_than_measured_energy() -> None:
    assert judge(recordings(1.12), LIMIT).verdict == "failed"
    assert judge(recordings(1.12, source="estimated"), LIMIT).verdict == "cannot tell"


def test_no_verdict_without_a_comparison() -> None:
    unlike = judge(recordings(3.0, comparable=False), LIMIT, rounds(200, 200))
    assert (unlike.verdict, unlike.ratio, unlike.reason) == ("cannot tell", None, "conditions")
    unknown = judge(recordings(3.0, b=side("new", 1.0, step=StepCost(None, None, 0, 0))), LIMIT)
    assert (unknown.verdict, unknown.ratio, unknown.reason) == ("cannot tell", None, "not measured")


def test_a_disturbed_recording_gives_no_verdict_and_disturbed_turns_do() -> None:
    base = recordings(3.0)
    found = replace(base, a=replace(base.a, unmet=("other programs on the CPU",)))
    assert judge(found, LIMIT).reason == "disturbed"
    assert judge(found, LIMIT, rounds(200, 200)).verdict == "failed", "both were measured in alternation"


@pytest.mark.parametrize(
    ("percent", "verdict"),
    [((0, 1), "passed"), ((10, 11), "failed"), ((5, 5, 5), "cannot tell"), ((-40,), "passed"), ((90,), "failed")],
)
def test_rounds(percent: Sequence[float], verdict: str) -> None:
    assert judge(recordings(1.0), LIMIT, rounds(*percent)).verdict == verdict


def test_one_pair_of_processes_settles_only_what_no_layout_of_memory_explains() -> None:
    assert judge(recordings(1.0), LIMIT, rounds(0)).verdict == "cannot tell"
    assert judge(recordings(1.0), LIMIT, rounds(10)).verdict == "cannot tell"
    assert judge(recordings(1.0), LIMIT, rounds(30)).verdict == "failed"


def test_pairs_of_processes_that_disagree_make_the_interval_wide() -> None:
    close, apart = (judge(recordings(1.0), LIMIT, rounds(*each)).ratio for each in ((10, 10, 10), (0, 10, 20)))
    assert close is not None and apart is not None
    assert apart.high / apart.low > 1.1 > close.high / close.low


def test_time_to_settle() -> None:
    gate = judge(recordings(1.0), LIMIT, rounds(3, 3.2, spent_s=10.0))
    assert (gate.verdict, gate.reason, gate.rounds, gate.spent_s) == ("cannot tell", "too noisy", 2, 20.0)
    assert gate.settles_s is not None and 20.0 < gate.settles_s < 200.0
    more = round(gate.settles_s / 10.0) + 1
    assert judge(recordings(1.0), LIMIT, rounds(*[3, 3.2] * more)).verdict == "passed"
    at_limit = judge(recordings(1.0), LIMIT, rounds(5, 5))
    assert (at_limit.reason, at_limit.settles_s) == ("too close", None)


def test_verdicts_of_programs_whose_extra_cost_is_known() -> None:
    """Turns spread by 4 % and processes by 1.5 %, as those of Python on a virtual machine do at worst."""
    chance = random.Random(20)
    verdicts = {0: [], 10: [], 20: []}
    for percent, found in verdicts.items():
        for _ in range(400):
            taken: list[Round] = []
            gate = None
            while len(taken) < 8 and (gate is None or gate.verdict == "cannot tell"):
                middle = math.log(1 + percent / 100) + chance.gauss(0, 0.015)
                taken.append(Round(tuple(chance.gauss(middle, 0.04) for _ in range(4)), 10.0))
                gate = judge(recordings(1.0), LIMIT, taken)
            assert gate is not None
            found.append(gate.verdict)
    assert "failed" not in verdicts[0] and "passed" not in verdicts[10] + verdicts[20]
    for percent, right in ((0, "passed"), (10, "failed"), (20, "failed")):
        assert verdicts[percent].count(right) > 380


@dataclass
class FakeProgram:
    """A program that costs the same in each turn, but for a drift with time."""

    joules: float
    clock: FakeClock
    turn_s: float = 0.3
    fails: bool = False
    pid: int = 7
    metered: list[Quiet | None] = field(default_factory=list)
    turns_s: list[float] = field(default_factory=list)

    def begin(self) -> None:
        self.clock.advance(2.0)

    def wait_built(self) -> None:
        pass

    def meter(self, idle_pids: Sequence[int] = (), *, idle: Quiet | None = None) -> None:
        self.metered.append(idle)

    def measure_apart(self) -> Energy:
        if self.fails:
            raise MeterFailed("no readings")
        self.clock.advance(self.turn_s)
        self.turns_s.append(self.clock.now())
        return energy(self.joules * (1 + 0.05 * self.clock.now() / 10), 0.02, "estimated")


@dataclass
class Machine:
    """Two programs; each start gives new processes."""

    joules: Mapping[str, float]
    starts: bool = True
    fails: bool = False
    clock: FakeClock = field(default_factory=FakeClock)
    started: list[dict[str, FakeProgram]] = field(default_factory=list)

    @contextmanager
    def start(self, programs: Mapping[Any, Program]) -> Iterator[dict[Any, FakeProgram]]:
        if not self.starts:
            raise ProgramError("no memory")
        self.started.append({name: FakeProgram(self.joules[name], self.clock, fails=self.fails) for name in programs})
        yield self.started[-1]

    def rounds(self, settle_s: float = 60.0) -> Rounds:
        return Rounds(LIMIT, settle_s, ProgressListener(), self.clock, self.start)


def programs() -> dict[Any, Program]:
    request = Request("step.py", RecordOptions())
    return {name: Program(request, Interpreter("python", {}), lambda _: None) for name in ("a", "b")}


def first_round(machine: Machine, settle_s: float = 60.0) -> Rounds:
    found = machine.rounds(settle_s)
    with machine.start(programs()) as live:
        found.measure(live)
    return found


def test_a_linear_drift_of_the_machine_leaves_the_ratio_alone() -> None:
    found = first_round(Machine({"a": 1.0, "b": 1.07}))
    assert len(found.done[0].log_ratios) >= LEAST_FOURS
    assert all(math.exp(each) == pytest.approx(1.07, rel=1e-3) for each in found.done[0].log_ratios)


@pytest.mark.parametrize(("b_j", "verdict"), [(1.0, "passed"), (1.1, "failed"), (0.97, "passed")])
def test_new_processes_are_measured_until_the_gate_can_tell(b_j: float, verdict: str) -> None:
    machine = Machine({"a": 1.0, "b": b_j})
    idle = {"a": Quiet(True, (), {}), "b": Quiet(True, (), {})}
    gate = first_round(machine).settle(recordings(1.0), programs(), idle)
    assert (gate.verdict, gate.rounds) == (verdict, len(machine.started))
    assert gate.rounds >= 2
    assert [each.metered for each in machine.started[-1].values()] == [[idle["a"]], [idle["b"]]]
    first, second = (min(each, key=lambda name: each[name].turns_s[0]) for each in machine.started[:2])
    assert {first, second} == {"a", "b"}, "the sides change their places"


def test_a_clear_difference_needs_no_other_process() -> None:
    machine = Machine({"a": 1.0, "b": 1.9})
    assert first_round(machine).settle(recordings(1.0), programs(), {}).verdict == "failed"
    assert len(machine.started) == 1


def test_the_time_for_a_gate_is_limited() -> None:
    machine = Machine({"a": 1.0, "b": 1.04})
    gate = first_round(machine, settle_s=1.0).settle(recordings(1.0), programs(), {})
    assert (gate.verdict, gate.rounds) == ("cannot tell", 1)
    assert gate.settles_s is not None and gate.settles_s > gate.spent_s
    longer = first_round(Machine({"a": 1.0, "b": 1.04}), settle_s=1000.0).settle(recordings(1.0), programs(), {})
    assert longer.verdict == "passed" and longer.rounds > 2


def test_a_ratio_at_the_limit_is_given_up() -> None:
    gate = first_round(Machine({"a": 1.0, "b": 1.05}), settle_s=1000.0).settle(recordings(1.0), programs(), {})
    assert (gate.verdict, gate.reason, gate.rounds) == ("cannot tell", "too close", ROUNDS_TO_GIVE_UP)


def test_a_program_that_does_not_start_again_leaves_the_first_round() -> None:
    machine = Machine({"a": 1.0, "b": 1.1})
    found = first_round(machine)
    machine.starts = False
    gate = found.settle(recordings(1.0), programs(), {})
    assert (gate.verdict, gate.rounds) == ("cannot tell", 1)


def test_without_a_first_round_the_recordings_are_compared() -> None:
    machine = Machine({"a": 1.0, "b": 1.0}, fails=True)
    found = first_round(machine)
    assert found.done == []
    gate = found.settle(recordings(1.3), programs(), {})
    assert (gate.verdict, gate.rounds, len(machine.started)) == ("failed", 0, 1)
