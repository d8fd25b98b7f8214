"""Measure two programs in alternation until a gate can tell, or the time for it is spent.

A machine's speed drifts within seconds, so turns are as short as the meters allow, in the order A, B, B, A. Two
processes of one program differ, so each further round has new ones, and the sides change their places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from joulediff.diagnosis.gate.judge import Round, judge, turns_half
from joulediff.diagnosis.interleaved_recording import Program, started
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.model.diff import Diff, Gate
from joulediff.model.energy import Energy, joules_of
from joulediff.model.errors import JoulediffError, MeterFailed
from joulediff.model.measurement import Quiet
from joulediff.model.pair import SIDES, SideName
from joulediff.model.progress import ProgressListener

# A round ends once the interval of its pair of processes is this narrow, or its turns took this long: another pair then
# says more than further turns.
AIM_SHARE = 0.01
ROUND_S = 6.0
LEAST_FOURS = 3
# Chosen: with fewer rounds, a ratio that seems to be at the limit is measured again.
ROUNDS_TO_GIVE_UP = 4
# A new process is measured for this long before the turns count, so that it is warm.
WARM_S = 1.0


class Turns(Protocol):
    """A program that can be measured in short turns."""

    def measure_apart(self) -> Energy:
        """Return the energy of a step in one turn."""


class NewProgram(Turns, Protocol):
    """A program that was started and is not built yet."""

    @property
    def pid(self) -> int:
        """The id of the process."""

    def begin(self) -> None:
        """Let the program build its step."""

    def wait_built(self) -> None:
        """Return once the program is built."""

    def meter(self, idle_pids: Sequence[int] = (), *, idle: Quiet | None = None) -> None:
        """Measure the step."""


Starter = Callable[[Mapping[SideName, Program]], AbstractContextManager[Mapping[SideName, NewProgram]]]


@dataclass(slots=True)
class Rounds:
    """The rounds of a gate so far."""

    limit: float
    settle_s: float
    listener: ProgressListener
    clock: Clock = field(default_factory=RealClock)
    start: Starter = started
    done: list[Round] = field(default_factory=list)

    @property
    def spent_s(self) -> float:
        """Return how long all rounds took."""
        return math.fsum(each.spent_s for each in self.done)

    def measure(self, live: Mapping[SideName, Turns], *, begin_s: float | None = None) -> None:
        """Measure one round; it began at `begin_s`, by default now. A meter that fails ends the round."""
        begin_s = self.clock.now() if begin_s is None else begin_s
        first, second = SIDES if len(self.done) % 2 == 0 else reversed(SIDES)
        found: list[float] = []
        turns_s = self.clock.now()
        with suppress(MeterFailed):
            while not self._is_enough(found, self.clock.now() - turns_s):
                self.listener.stage(f"the gate: measuring both in turns, round {len(self.done) + 1}")
                turns = [(side, live[side].measure_apart()) for side in (first, second, second, first)]
                joules = {side: math.fsum(joules_of(e) for name, e in turns if name == side) for side in SIDES}
                if not min(joules.values()) > 0:
                    break
                found.append(math.log(joules["b"] / joules["a"]))
        if len(found) >= LEAST_FOURS:
            self.done.append(Round(tuple(found), self.clock.now() - begin_s))

    def _is_enough(self, found: list[float], spent_s: float) -> bool:
        return len(found) >= LEAST_FOURS and (turns_half(found) <= AIM_SHARE or spent_s >= ROUND_S)

    def settle(self, diff: Diff, programs: Mapping[SideName, Program], idle: Mapping[SideName, Quiet]) -> Gate:
        """Return the verdict, after as many further rounds in new processes as it needs and the time allows."""
        gate = judge(diff, self.limit, self.done)
        # Without a first round one program was measured alone, for instance since there is no memory for both.
        while self._is_open(gate) and self._has_time():
            count = len(self.done)
            with suppress(JoulediffError):  # a program that does not start again leaves the rounds that there are
                self.measure_anew(programs, idle)
            if len(self.done) == count:
                break
            gate = judge(diff, self.limit, self.done)
        return gate

    def _is_open(self, gate: Gate) -> bool:
        """Return whether another round may settle it: a few rounds do not show how close the ratio is to the limit."""
        is_too_close = gate.reason == "too close" and len(self.done) >= ROUNDS_TO_GIVE_UP
        return bool(self.done) and gate.reason in ("too noisy", "too close") and not is_too_close

    def _has_time(self) -> bool:
        """Return whether another round, as long as the last one, ends in time."""
        return self.spent_s + self.done[-1].spent_s <= self.settle_s

    def measure_anew(self, programs: Mapping[SideName, Program], idle: Mapping[SideName, Quiet]) -> None:
        """Measure one round in new processes, with the idle power that is known of each program."""
        begin_s = self.clock.now()
        self.listener.stage(f"the gate: starting both programs for round {len(self.done) + 1}")
        with self.start({side: _to_meter(program) for side, program in programs.items()}) as live:
            for each in live.values():
                each.begin()
            for each in live.values():
                each.wait_built()
            for side, each in live.items():
                each.meter([other.pid for name, other in live.items() if name != side], idle=idle.get(side))
            self.measure(live, begin_s=begin_s)


def _to_meter(program: Program) -> Program:
    options = replace(program.request.options, seconds=WARM_S, wait_s=0.0, replay=False)
    return replace(program, request=replace(program.request, options=options), keep=lambda _: None)
