"""Joules of each distinct operator, by running it again alone at the clock the program ran at.

A call's energy is what a burst takes above the resting device, divided by the calls in it. The operators that took
the most device time come first, so that a budget which runs out costs the least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from joulediff.energy.bench import Bench, Shot
from joulediff.energy.kinds import Kind, find_kinds, size_bytes
from joulediff.energy.pace import CLOCK_SHARE, EVEN, HEADROOM, Draw, Pace, choose_pace
from joulediff.energy.reuse import find_warm_inputs
from joulediff.errors import JoulediffError
from joulediff.metering.perstep import PerStep
from joulediff.meters.meter import Clock
from joulediff.recorders.recorder import Load, Replayer
from joulediff.records import DomainEnergy
from joulediff.runs import Replay, Run
from joulediff.stability.watch import Watch
from joulediff.units import format_time

SECONDS = 60.0
# Measuring takes this long for each operator on average, and at least and at most so long.
MEAN_WINDOW_S = 0.4
MIN_WINDOW_S, MAX_WINDOW_S = 0.15, 1.0
REST_WINDOW_S = 0.4
# An operator with less than this share of the device time is not worth measuring: it is attributed.
NEGLIGIBLE_SHARE = 2e-4
# A call that takes another time alone than in the program, by more than this, does so for other reasons than the cache.
MAX_CACHE_SHARE = 0.3
# How often the mean power is changed in search of the program's clock.
TRIES = 4
SLOWER, FASTER = 1.12, 0.9
# Rest power moves with the temperature, over tens of seconds.
REST_FRESH_S = 15.0
REST_S = 1e-3
# The step is run again for each lot of inputs that fits into memory; beyond this many lots, values are drawn.
MAX_LOTS = 4
# So many failures of a device in a row, and it is no use to go on.
MAX_FAILURES = 5


@dataclass(frozen=True, slots=True)
class _Ballast:
    """A heavy operator that pulls the clock down, and the energy of its burst above rest at the program's clock."""

    load: Load
    draw: Draw
    burst_j: float
    half_j: float


@dataclass(slots=True)
class _Card:
    """What is known of a device in this replay."""

    device: str
    domain: str
    target_mhz: float | None
    rest: tuple[PerStep, float] | None = None
    """Power at rest, and when it was measured."""
    limit_w: float | None = None
    program_w: float | None = None
    ballast: _Ballast | None = None


@dataclass(slots=True)
class Replaying:
    """A replay under way. `result` is the run with what has been measured so far."""

    run: Run
    replayer: Replayer
    bench: Bench
    clock: Clock
    watch: Watch
    seconds: float = SECONDS
    pace: Pace | None = None
    """The same pace for all, whatever clock that gives; to show what it costs."""
    _rows: list[Replay] = field(default_factory=list)
    _row_of: dict[int, int] = field(default_factory=dict)
    _cards: dict[str, _Card] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)

    def go(self) -> None:
        """Replay everything that can be, within the time there is."""
        begin_s, failures, done = self.clock.now(), 0, 0
        kinds = list(self._possible(find_kinds(self.run)))
        windows_s = share_time([kind.time_s for kind in kinds])
        warm = self._find_warm(kinds)
        try:
            for lot in self._lots(kinds):
                for kind in lot:
                    spent_s = self.clock.now() - begin_s
                    if spent_s >= self.seconds or failures >= MAX_FAILURES:
                        self._give_up(kinds[done:], spent_s, failures)
                        return
                    self._tell(done, len(kinds), spent_s)
                    found = self._measure(kind, warm.get(kind.op, ()), windows_s[done])
                    self._add(kind, found)
                    failures = 0 if any(row.energy_j is not None for row in found) else failures + 1
                    done += 1
        finally:
            self.close()

    def close(self) -> None:
        """Give all memory back."""
        for card in self._cards.values():
            if card.ballast is not None:
                card.ballast.load.close()
                card.ballast = None
        self.replayer.close()

    def result(self) -> Run:
        """Return the run with what has been measured so far."""
        if not self._rows:
            return replace(self.run, notes=(*self.run.notes, *self._notes))
        ops = tuple(replace(op, replay=self._row_of[op.id]) if op.id in self._row_of else op for op in self.run.ops)
        return replace(self.run, ops=ops, replays=tuple(self._rows), notes=(*self.run.notes, *self._notes))

    @property
    def measured(self) -> int:
        """How many distinct operators have been measured."""
        return len({row.op for row in self._rows if row.energy_j is not None})

    def _possible(self, kinds: Sequence[Kind]) -> Iterator[Kind]:
        total_s = sum(kind.time_s for kind in kinds)
        for kind in kinds:
            why = self.replayer.refusal(self.run.ops[kind.op])
            if why is None and kind.time_s < NEGLIGIBLE_SHARE * total_s:
                why = "too little of the device's time to be worth measuring alone"
            if why is None and not self._domains(kind.device):
                why = f"no meter sees {kind.device}"
            if why is None:
                yield kind
            else:
                self._add(kind, [Replay(kind.op, self._name(kind.device), note=why)])

    def _find_warm(self, kinds: Sequence[Kind]) -> dict[int, tuple[bool, ...]]:
        found: dict[int, tuple[bool, ...]] = {}
        for device in {kind.device for kind in kinds}:
            ops = {kind.op for kind in kinds if kind.device == device}
            found |= find_warm_inputs(self.run, ops, self.replayer.cache_bytes(device))
        return found

    def _lots(self, kinds: Sequence[Kind]) -> Iterator[Sequence[Kind]]:
        """Yield kinds in order, after their inputs have been collected, as many as fit into memory at once."""
        left, lots = list(kinds), 0
        while left:
            budget = {device: self.replayer.budget_bytes(device) for device in {kind.device for kind in left}}
            lot: list[Kind] = []
            for kind in left:
                budget[kind.device] -= self._inputs_bytes(kind)
                if lot and budget[kind.device] < 0:
                    break
                lot.append(kind)
            lots += 1
            if lots > MAX_LOTS:
                lot = left
            left = left[len(lot) :]
            self.watch.stage("replayed: running the step for the inputs of its operators", None)
            self.replayer.collect([kind.op for kind in lot] if lots <= MAX_LOTS else [])
            yield lot

    def _inputs_bytes(self, kind: Kind) -> int:
        return sum(size_bytes(self.run.values[value]) for value in set(self.run.ops[kind.op].inputs))

    def _measure(self, kind: Kind, warm: Sequence[bool], window_s: float) -> list[Replay]:
        try:
            load = self.replayer.open_load(kind.op, warm=warm, device_s=kind.call_s)
        except JoulediffError as error:
            return [Replay(kind.op, self._name(kind.device), note=error.what)]
        kept = False
        try:
            if kind.device == "cpu":
                return self._measure_on_host(kind, load, window_s)
            found, kept = self._measure_on_card(kind, load, window_s)
            return [found]
        except JoulediffError as error:
            return [Replay(kind.op, self._name(kind.device), note=error.what)]
        finally:
            if not kept:
                load.close()

    def _measure_on_card(self, kind: Kind, load: Load, window_s: float) -> tuple[Replay, bool]:
        """Return an operator's energy, and whether its load is kept as ballast for others."""
        card = self._card(kind.device)
        rest = self._rest(card)
        pace, draw, mean_w = self._first_pace(card, load, rest)
        matched = False
        for attempt in range(TRIES):
            shot = self._shoot(card, load, pace, window_s)
            clock_mhz = shot.clocks_mhz.get(card.domain)
            if clock_mhz is None or not card.target_mhz or draw is None:
                break
            matched = abs(clock_mhz / card.target_mhz - 1) <= CLOCK_SHARE
            if matched or attempt == TRIES - 1:
                break
            draw = _draw(load, shot.domains[card.domain], rest, pace, card)
            mean_w *= SLOWER if clock_mhz > card.target_mhz else FASTER
            before, pace = pace, self._pace(card, draw, rest.power_w, mean_w)
            if pace == before:
                break
        if shot.doubts:
            shot = self._shoot(card, load, pace, window_s)
        found = _above_rest(kind, load, card, shot, rest, pace, matched=matched)
        return found, self._keep_ballast(card, load, found, draw, pace, matched=matched)

    def _first_pace(self, card: _Card, load: Load, rest: PerStep) -> tuple[Pace, Draw | None, float]:
        """Return the pace to begin with, what the operator draws, and the mean power to aim at."""
        if self.pace is not None:
            return self.pace, None, 0.0
        power_w, clock_mhz = self.bench.probe(lambda: _run(load, EVEN, card), card.domain)
        if power_w is None or card.limit_w is None:
            return EVEN, None, 0.0
        draw = Draw(rest.power_w + (power_w - rest.power_w) * (1 + EVEN.rest_share), load.burst_s)
        mean_w = HEADROOM * card.limit_w
        if clock_mhz and card.target_mhz and clock_mhz > card.target_mhz * (1 + CLOCK_SHARE):
            mean_w = max(mean_w, card.program_w or 0.0)  # the program ran into the limit
        return self._pace(card, draw, rest.power_w, mean_w), draw, mean_w

    def _pace(self, card: _Card, draw: Draw, rest_w: float, mean_w: float) -> Pace:
        is_slow = card.limit_w is not None and mean_w > HEADROOM * card.limit_w
        ballast = card.ballast.draw if card.ballast is not None and is_slow else None
        return choose_pace(draw, rest_w=rest_w, mean_w=mean_w, ballast=ballast)

    def _shoot(self, card: _Card, load: Load, pace: Pace, window_s: float) -> Shot:
        return self.bench.measure(lambda: _run(load, pace, card), [card.domain], window_s=window_s)

    def _keep_ballast(
        self, card: _Card, load: Load, found: Replay, draw: Draw | None, pace: Pace, *, matched: bool
    ) -> bool:
        """Keep the first heavy operator of a program at its power limit, to pull the clock down for lighter ones."""
        is_heavy = draw is not None and card.program_w is not None and draw.power_w > 1.1 * card.program_w
        is_slow = card.limit_w is not None and (card.program_w or 0.0) > HEADROOM * card.limit_w
        if card.ballast is not None or not (matched and is_heavy and is_slow) or pace.ballast:
            return False
        assert draw is not None and found.energy_j is not None and found.high_j is not None
        half_j = found.high_j - found.energy_j
        card.ballast = _Ballast(load, draw, found.energy_j * load.calls, half_j * load.calls)
        return True

    def _measure_on_host(self, kind: Kind, load: Load, window_s: float) -> list[Replay]:
        shot = self.bench.measure(lambda: load.run(0.0), self._domains("cpu"), window_s=window_s)
        return [self._on_host(kind, load, shot, name, per) for name, per in shot.domains.items()]

    def _on_host(self, kind: Kind, load: Load, shot: Shot, name: str, per: PerStep) -> Replay:
        idle = self._measured()[name].idle
        idle_w = 0.0 if idle is None else idle.power_w
        half_j = per.half_j if idle is None else math.hypot(per.half_j, (idle.high_w - idle.low_w) / 2 * per.step_s)
        net_j = per.energy_j - idle_w * per.step_s
        energy_j, low_j, high_j = (joules / load.calls for joules in (net_j, net_j - half_j, net_j + half_j))
        return Replay(
            kind.op,
            name,
            energy_j,
            low_j,
            high_j,
            source="estimated" if self._measured()[name].energy.source == "estimated" else "replayed",
            rest_w=idle_w,
            call_s=per.step_s / load.calls,
            cpu_s=shot.cpu_s / load.calls,
            calls=round(shot.bursts * load.calls),
            how=load.how,
            inputs=load.inputs,
            copies=load.copies,
            note="; ".join(shot.doubts) or None,
        )

    def _rest(self, card: _Card) -> PerStep:
        """Return the power of a resting device: measured now, or not long ago."""
        now_s = self.clock.now()
        if card.rest is None or now_s - card.rest[1] > REST_FRESH_S:
            load = self.replayer.open_rest(card.device)
            if load is None:
                raise JoulediffError(f"{card.device} cannot be held at rest")
            shot = self.bench.measure(lambda: load.run(REST_S), [card.domain], window_s=REST_WINDOW_S)
            card.rest = (shot.domains[card.domain], now_s)
        return card.rest[0]

    def _card(self, device: str) -> _Card:
        if device not in self._cards:
            found, name = self.run.measurement, self._name(device)
            target_mhz = None if found is None else found.clocks_mhz.get(name)
            states = () if found is None else found.states
            limit_w = next((s.power_limit_w for s in states if s.domain == name), None)
            program_w = self._measured()[name].power_w
            self._cards[device] = _Card(device, name, target_mhz, limit_w=limit_w, program_w=program_w)
        return self._cards[device]

    def _name(self, device: str) -> str:
        kind, _, index = device.partition(":")
        return "cpu" if kind == "cpu" else f"gpu{index or 0}"

    def _domains(self, device: str) -> list[str]:
        """Return the domains of the measurement that see a device."""
        found = self._measured()
        if device != "cpu":
            return [self._name(device)] if self._name(device) in found else []
        return [name for name in found if name.startswith(("cpu", "dram"))]

    def _measured(self) -> dict[str, DomainEnergy]:
        return {} if self.run.measurement is None else dict(self.run.measurement.domains)

    def _add(self, kind: Kind, rows: Sequence[Replay]) -> None:
        self._row_of |= dict.fromkeys(kind.ops, len(self._rows))
        self._rows += rows

    def _give_up(self, kinds: Sequence[Kind], spent_s: float, failures: int) -> None:
        why = f"the {format_time(spent_s)} for replay were spent" if failures < MAX_FAILURES else "the device failed"
        for kind in kinds:
            self._add(kind, [Replay(kind.op, self._name(kind.device), note=why)])

    def _tell(self, done: int, count: int, spent_s: float) -> None:
        left_s = min(self.seconds - spent_s, (count - done) * (spent_s / done if done else 0.6))
        self.watch.stage(f"replayed: {done} of {count} operators, {left_s:.0f} s left", done / count)


def share_time(times_s: Sequence[float]) -> list[float]:
    """Return how long to measure each operator: longer, the more its error would weigh in the sum."""
    weights = [math.sqrt(max(0.0, time_s)) for time_s in times_s]
    total = sum(weights) or 1.0
    given_s = MEAN_WINDOW_S * len(times_s)
    return [min(MAX_WINDOW_S, max(MIN_WINDOW_S, given_s * weight / total)) for weight in weights]


def _run(load: Load, pace: Pace, card: _Card) -> None:
    for _ in range(pace.bursts - 1):
        load.run(0.0)
    load.run(pace.rest_share * load.burst_s)
    for _ in range(pace.ballast):
        assert card.ballast is not None
        card.ballast.load.run(0.0)


def _draw(load: Load, per: PerStep, rest: PerStep, pace: Pace, card: _Card) -> Draw:
    """Return what an operator drew while it ran."""
    net_j = per.energy_j - rest.power_w * per.step_s
    if pace.ballast and card.ballast is not None:
        net_j -= pace.ballast * card.ballast.burst_j
    return Draw(rest.power_w + max(0.0, net_j) / (pace.bursts * load.burst_s), load.burst_s)


def _cache_factor(load: Load) -> tuple[float, float]:
    """Return what turns the energy of a call into that with the program's cache, and how far that may be off.

    Where a call takes longer alone than in the program, the program found more in its cache: it needed less time at no
    less power, and no more energy. The truth lies between the two; likewise the other way round.
    """
    if load.call_s is None or load.aim_s is None:
        return 1.0, 0.0
    change = min(MAX_CACHE_SHARE, max(-MAX_CACHE_SHARE, load.aim_s / load.call_s - 1))
    return 1 + change / 2, abs(change) / 2


def _above_rest(kind: Kind, load: Load, card: _Card, shot: Shot, rest: PerStep, pace: Pace, *, matched: bool) -> Replay:
    """Return the energy of a call above that of the resting device, and of the ballast beside it."""
    per = shot.domains[card.domain]
    rest_w, rest_half_w = rest.power_w, rest.half_j / rest.step_s
    calls = load.calls * pace.bursts
    net_j = per.energy_j - rest_w * per.step_s
    half_j = math.hypot(per.half_j, rest_half_w * per.step_s)
    if pace.ballast and card.ballast is not None:
        net_j -= pace.ballast * card.ballast.burst_j
        half_j = math.hypot(half_j, pace.ballast * card.ballast.half_j)
    factor, factor_half = _cache_factor(load)
    half_j = math.hypot(factor * half_j, factor_half * net_j)
    net_j *= factor
    clock_mhz = shot.clocks_mhz.get(card.domain)
    doubts = list(shot.doubts)
    if not matched and clock_mhz is not None and card.target_mhz:
        doubts.append(f"ran at {clock_mhz:.0f} MHz, the program at {card.target_mhz:.0f}: no pace brings them together")
    return Replay(
        kind.op,
        card.domain,
        net_j / calls,
        (net_j - half_j) / calls,
        (net_j + half_j) / calls,
        rest_w=rest_w,
        call_s=load.call_s,
        calls=round(shot.bursts * calls),
        clock_mhz=clock_mhz,
        how=load.how,
        inputs=load.inputs,
        copies=load.copies,
        note="; ".join(doubts) or None,
    )
