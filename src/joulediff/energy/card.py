"""One device in a replay: what it draws at rest, and how to keep it at the clock the program ran at.

The pace of a load is chosen from the power it draws. A program below its power limit leaves the clock alone, so any
mean power well below the limit does; one that ran into the limit is matched by trying mean powers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from joulediff.energy.bench import Bench, Shot
from joulediff.energy.pace import CLOCK_SHARE, EVEN, HEADROOM, Draw, Pace, choose_pace
from joulediff.errors import JoulediffError
from joulediff.metering.perstep import PerStep
from joulediff.meters.meter import Clock
from joulediff.recorders.recorder import Load

REST_WINDOW_S = 0.4
REST_S = 1e-3
# Rest power moves with the temperature, over tens of seconds.
REST_FRESH_S = 15.0
# How often the mean power is changed in search of the program's clock, and by how much at first.
TRIES = 6
STEP = 1.12
# A heavy operator this near to the program's clock can serve as ballast for others.
BALLAST_CLOCK_SHARE = 0.02
# A call that takes another time alone than in the program, by more than this, does so for other reasons than the cache.
MAX_CACHE_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Facts:
    """What the metered pass says of a device; None for what its driver does not tell."""

    device: str
    domain: str
    clock_mhz: float | None = None
    power_w: float | None = None
    limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class CallEnergy:
    """The energy of one call above rest, and how it was measured."""

    energy_j: float
    half_j: float
    rest_w: float
    clock_mhz: float | None
    calls: int
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Ballast:
    load: Load
    draw: Draw
    burst_j: float
    half_j: float


class Card:
    """A device under replay. It may keep the load of a heavy operator as ballast until it is closed."""

    def __init__(
        self,
        facts: Facts,
        bench: Bench,
        *,
        open_rest: Callable[[], Load | None],
        clock: Clock,
        pace: Pace | None = None,
    ) -> None:
        self.facts = facts
        self._bench = bench
        self._open_rest = open_rest
        self._clock = clock
        self._forced = pace
        self._rest: tuple[PerStep, float] | None = None
        self._ballast: _Ballast | None = None

    def measure(self, load: Load, window_s: float) -> CallEnergy:
        """Return the energy of one call of a load, at the program's clock or as near to it as can be had."""
        rest = self._find_rest()
        pace, draw = self._find_pace(load, rest)
        shot = self._shoot(load, pace, rest, window_s)
        if shot.doubts:
            shot = self._shoot(load, pace, rest, window_s)
        found = self._divide(load, pace, shot, rest)
        self._keep_ballast(load, draw, pace, found)
        return found

    def has_kept(self, load: Load) -> bool:
        """Return whether a load serves as ballast and must stay open."""
        return self._ballast is not None and self._ballast.load is load

    def close(self) -> None:
        """Let the ballast go."""
        if self._ballast is not None:
            self._ballast.load.close()
            self._ballast = None

    def _find_rest(self) -> PerStep:
        """Return the power at rest: measured now, or not long ago."""
        now_s = self._clock.now()
        if self._rest is None or now_s - self._rest[1] > REST_FRESH_S:
            load = self._open_rest()
            if load is None:
                raise JoulediffError(f"{self.facts.device} cannot be held at rest")
            shot = self._bench.measure(lambda: load.run(REST_S), {self.facts.domain: 0.0}, window_s=REST_WINDOW_S)
            self._rest = (shot.domains[self.facts.domain], now_s)
        return self._rest[0]

    def _find_pace(self, load: Load, rest: PerStep) -> tuple[Pace, Draw | None]:
        """Return a pace that gives the program's clock, and what the load draws at full clock."""
        facts = self.facts
        if self._forced is not None:
            return self._forced, None
        power_w, clock_mhz = self._probe(load, EVEN)
        if power_w is None or facts.limit_w is None:
            return EVEN, None
        draw = Draw(rest.power_w + (power_w - rest.power_w) * (1 + EVEN.rest_share), load.burst_s)
        mean_w = HEADROOM * facts.limit_w
        if clock_mhz and facts.clock_mhz and clock_mhz > facts.clock_mhz * (1 + CLOCK_SHARE):
            return self._search(load, draw, rest.power_w, max(mean_w, facts.power_w or 0.0)), draw
        return choose_pace(draw, rest_w=rest.power_w, mean_w=mean_w), draw

    def _search(self, load: Load, draw: Draw, rest_w: float, mean_w: float) -> Pace:
        """Return the pace whose clock is nearest to that of a program which ran into the power limit."""
        ballast = None if self._ballast is None else self._ballast.draw
        low_w, high_w = rest_w, math.inf
        best, least, tried = EVEN, math.inf, set[Pace]()
        for _ in range(TRIES):
            pace = choose_pace(draw, rest_w=rest_w, mean_w=mean_w, ballast=ballast)
            if pace in tried:
                break
            tried.add(pace)
            _, clock_mhz = self._probe(load, pace)
            assert clock_mhz is not None and self.facts.clock_mhz is not None
            off = clock_mhz / self.facts.clock_mhz - 1
            if abs(off) < least:
                best, least = pace, abs(off)
            if least <= CLOCK_SHARE / 2:
                break
            if off > 0:
                low_w = mean_w
            else:
                high_w = mean_w
            mean_w = mean_w * STEP if math.isinf(high_w) else (low_w + high_w) / 2
        return best

    def _probe(self, load: Load, pace: Pace) -> tuple[float | None, float | None]:
        return self._bench.probe(lambda: self._run(load, pace), self.facts.domain)

    def _shoot(self, load: Load, pace: Pace, rest: PerStep, window_s: float) -> Shot:
        return self._bench.measure(lambda: self._run(load, pace), {self.facts.domain: rest.power_w}, window_s=window_s)

    def _run(self, load: Load, pace: Pace) -> None:
        for _ in range(pace.bursts - 1):
            load.run(0.0)
        load.run(pace.rest_share * load.burst_s)
        for _ in range(pace.ballast):
            assert self._ballast is not None
            self._ballast.load.run(0.0)

    def _divide(self, load: Load, pace: Pace, shot: Shot, rest: PerStep) -> CallEnergy:
        """Return the energy of one call: less the ballast beside it, and with the program's cache."""
        per = shot.domains[self.facts.domain]
        net_j = per.energy_j
        half_j = math.hypot(per.half_j, rest.half_j / rest.step_s * per.step_s)
        if pace.ballast and self._ballast is not None:
            net_j -= pace.ballast * self._ballast.burst_j
            half_j = math.hypot(half_j, pace.ballast * self._ballast.half_j)
        factor, factor_half = cache_factor(load.call_s, load.aim_s)
        half_j = math.hypot(factor * half_j, factor_half * net_j)
        calls, clock_mhz = load.calls * pace.bursts, shot.clocks_mhz.get(self.facts.domain)
        doubts = (*shot.doubts, *self._judge_clock(clock_mhz))
        return CallEnergy(
            factor * net_j / calls, half_j / calls, rest.power_w, clock_mhz, round(shot.bursts * calls), doubts
        )

    def _judge_clock(self, clock_mhz: float | None) -> list[str]:
        wanted_mhz = self.facts.clock_mhz
        if clock_mhz is None or not wanted_mhz or abs(clock_mhz / wanted_mhz - 1) <= CLOCK_SHARE:
            return []
        return [f"ran at {clock_mhz:.0f} MHz, the program at {wanted_mhz:.0f}: no pace brought them together"]

    def _keep_ballast(self, load: Load, draw: Draw | None, pace: Pace, found: CallEnergy) -> None:
        """Keep the first heavy operator of a program at its power limit, to pull the clock down for lighter ones."""
        facts = self.facts
        if self._ballast is not None or draw is None or not (facts.power_w and facts.clock_mhz and found.clock_mhz):
            return
        is_heavy = draw.power_w > facts.power_w > HEADROOM * (facts.limit_w or math.inf)
        if is_heavy and abs(found.clock_mhz / facts.clock_mhz - 1) <= BALLAST_CLOCK_SHARE and not pace.ballast:
            self._ballast = _Ballast(load, draw, found.energy_j * load.calls, found.half_j * load.calls)


def cache_factor(call_s: float | None, aim_s: float | None) -> tuple[float, float]:
    """Return what turns the energy of a call into that with the program's cache, and how far that may be off.

    Where a call takes longer alone than in the program, the program found more in its cache: it needed less time at no
    less power, and no more energy. The truth lies between the two; likewise the other way round.
    """
    if not call_s or not aim_s:
        return 1.0, 0.0
    change = min(MAX_CACHE_SHARE, max(-MAX_CACHE_SHARE, aim_s / call_s - 1))
    return 1 + change / 2, abs(change) / 2
