"""One device in a replay: what it draws at rest, and how to keep it at the clock the program ran at.

The pace of a load is chosen from the power it draws. A program below its power limit leaves the clock alone, so any
mean power well below the limit does; one that ran into the limit is matched by trying mean powers, where a load can
be brought that low at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from joulediff.energy.burst_meter import PROBE_S, BurstMeter, Shot
from joulediff.frameworks.recorder import Load
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.windows import PerStep
from joulediff.model.errors import JoulediffError

REST_WINDOW_S = 0.4
REST_S = 1e-3
# Rest power moves with the temperature, over tens of seconds.
REST_FRESH_S = 30.0
# Without rests the power is even: the samples of half a second repeat within 0.3 %, with rests within 1.3 % (H200).
LIGHT_REST_SHARE = 0.1
LIGHT_WINDOW, HEAVY_WINDOW = 0.6, 1.6
# What draws less than this part of the limit is not slowed down by it, however long it runs.
LIMITLESS_SHARE = 0.85
# How often the mean power is changed in search of the program's clock.
TRIES = 4
# A governor at its limit moves for a while after every change.
SEARCH_S = 0.25
# A card this much warmer or colder than in the program draws noticeably another power at rest.
HEAT_C = 15.0
# Calls that take as long as in the program within this find the cache as they do there.
ALIKE_SHARE = 0.03
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
    temperature_c: float | None = None
    full_mhz: float | None = None
    """The clock it has where nothing limits it."""

    @property
    def slower(self) -> float:
        """How much longer a kernel may take at the program's clock than at the full one."""
        return max(1.0, self.full_mhz / self.clock_mhz) if self.full_mhz and self.clock_mhz else 1.0


@dataclass(frozen=True, slots=True)
class CallEnergy:
    """The energy of one call above rest, and how it was measured."""

    energy_j: float
    half_j: float
    rest_w: float
    clock_mhz: float | None
    calls: int
    doubts: tuple[str, ...]


class Card:
    """A device under replay."""

    def __init__(
        self,
        facts: Facts,
        bench: BurstMeter,
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

    def measure(self, load: Load, window_s: float) -> CallEnergy:
        """Return the energy of one call of a load, at the program's clock or as near to it as can be had."""
        rest = self._find_rest()
        pace = self._find_pace(load, rest)
        window_s *= LIGHT_WINDOW if pace.rest_share < LIGHT_REST_SHARE else HEAVY_WINDOW
        shot = self._shoot(load, pace, rest, window_s)
        if shot.doubts:
            shot = self._shoot(load, pace, rest, window_s)
        return self._divide(load, shot, rest)

    def _find_rest(self) -> PerStep:
        """Return the power at rest: measured now, or not long ago."""
        now_s = self._clock.now()
        if self._rest is None or now_s - self._rest[1] > REST_FRESH_S:
            load = self._open_rest()
            if load is None:
                raise JoulediffError(f"{self.facts.device} cannot be held at rest")
            with closing(load):
                shot = self._bench.measure(lambda: load.run(REST_S), {self.facts.domain: 0.0}, window_s=REST_WINDOW_S)
            self._rest = (shot.domains[self.facts.domain], now_s)
        return self._rest[0]

    def _find_pace(self, load: Load, rest: PerStep) -> Pace:
        """Return a pace that gives the program's clock, or comes near it."""
        facts = self.facts
        if self._forced is not None:
            return self._forced
        mean_w, clock_mhz = self._probe(load, EVEN)
        if mean_w is None or facts.limit_w is None:
            return EVEN
        power_w, limit_w = rest.power_w + (mean_w - rest.power_w) * (1 + EVEN.rest_share), HEADROOM * facts.limit_w
        if not (clock_mhz and facts.clock_mhz) or clock_mhz <= facts.clock_mhz * (1 + CLOCK_SHARE):
            return choose_pace(power_w, rest_w=rest.power_w, mean_w=limit_w)
        if power_w < LIMITLESS_SHARE * facts.limit_w:
            return Pace(0.0)
        return self._search(load, power_w, rest.power_w, max(limit_w, facts.power_w or 0.0))

    def _search(self, load: Load, power_w: float, rest_w: float, mean_w: float) -> Pace:
        """Return the pace whose clock is nearest to that of a program which ran into the power limit."""
        # Half of the time busy is known to give too high a clock.
        low_w, high_w = min(mean_w, rest_w + (power_w - rest_w) / (1 + EVEN.rest_share)), power_w
        best, least = EVEN, math.inf
        for _ in range(TRIES):
            pace = choose_pace(power_w, rest_w=rest_w, mean_w=mean_w)
            _, clock_mhz = self._probe(load, pace, SEARCH_S)
            if not (clock_mhz and self.facts.clock_mhz):
                break
            off = clock_mhz / self.facts.clock_mhz - 1
            if abs(off) < least:
                best, least = pace, abs(off)
            if least <= CLOCK_SHARE / 2 or (off > 0 and not pace.rest_share):
                break
            low_w, high_w = (mean_w, high_w) if off > 0 else (low_w, mean_w)
            mean_w = (low_w + high_w) / 2
        return best

    def _probe(self, load: Load, pace: Pace, seconds: float = PROBE_S) -> tuple[float | None, float | None]:
        return self._bench.probe(lambda: self._run(load, pace), self.facts.domain, seconds=seconds)

    def _shoot(self, load: Load, pace: Pace, rest: PerStep, window_s: float) -> Shot:
        return self._bench.measure(lambda: self._run(load, pace), {self.facts.domain: rest.power_w}, window_s=window_s)

    def _run(self, load: Load, pace: Pace) -> None:
        load.run(pace.rest_share * load.burst_s)

    def _divide(self, load: Load, shot: Shot, rest: PerStep) -> CallEnergy:
        """Return the energy of one call, at the program's clock and with its cache."""
        per, clock_mhz = shot.domains[self.facts.domain], shot.clocks_mhz.get(self.facts.domain)
        half_j = math.hypot(per.half_j, rest.half_j / rest.step_s * per.step_s)
        energy_j = per.energy_j
        is_heavy = rest.power_w + energy_j / load.burst_s > (self.facts.limit_w or math.inf)
        corrections = (
            cache_factor(load.call_s, load.aim_s, slower=self.facts.slower),
            clock_factor(clock_mhz, self.facts.clock_mhz, heavy=is_heavy),
        )
        for factor, doubt in corrections if self._forced is None else ():
            half_j = math.hypot(factor * half_j, doubt * energy_j)
            energy_j *= factor
        warm_c = shot.temperatures_c.get(self.facts.domain)
        doubts = (*shot.doubts, *self._judge_clock(clock_mhz), *self._judge_heat(warm_c))
        calls = round(shot.bursts * load.calls)
        return CallEnergy(energy_j / load.calls, half_j / load.calls, rest.power_w, clock_mhz, calls, doubts)

    def _judge_clock(self, clock_mhz: float | None) -> list[str]:
        wanted_mhz = self.facts.clock_mhz
        if clock_mhz is None or not wanted_mhz or abs(clock_mhz / wanted_mhz - 1) <= CLOCK_SHARE:
            return []
        return [f"ran at {clock_mhz:.0f} MHz, the program at {wanted_mhz:.0f}: no pace brought them together"]

    def _judge_heat(self, warm_c: float | None) -> list[str]:
        program_c = self.facts.temperature_c
        if warm_c is None or program_c is None or abs(warm_c - program_c) <= HEAT_C:
            return []
        return [f"replayed at {warm_c:.0f} °C, the program ran at {program_c:.0f} °C"]


def cache_factor(call_s: float | None, aim_s: float | None, *, slower: float = 1.0) -> tuple[float, float]:
    """Return what turns the energy of a call into that with the program's cache, and how far that may be off.

    Where a call takes longer alone than in the program, the program found more in its cache: it needed less time at no
    less power, and no more energy. The truth lies between the two; likewise the other way round. A program at its power
    limit may have been `slower` by its clock alone.
    """
    if not call_s or not aim_s:
        return 1.0, 0.0
    ratio = aim_s / call_s
    change = (max(1.0, ratio / slower) if ratio > 1 else ratio) - 1
    beyond = math.copysign(min(MAX_CACHE_SHARE, max(0.0, abs(change) - ALIKE_SHARE)), change)
    return 1 + beyond / 2, abs(beyond) / 2


# A replay counts as one at the program's clock within this.
CLOCK_SHARE = 0.01
# As much power as leaves the clock alone: an H200 holds 1980 MHz at half of the time busy with a matrix product and not
# at 70 %. The more of the time is busy, the less the samples spread.
HEADROOM = 0.75
MAX_REST_SHARE = 4.0
# How much of a change of clock shows in the energy, and how far that may be off.
HEAVY_FOLLOWS = (1.0, 0.25)
LIGHT_FOLLOWS = (0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Pace:
    """A burst of the operator and a rest, as a share of its time. The default: half of the time busy."""

    rest_share: float = 1.0


EVEN = Pace()


def choose_pace(power_w: float, *, rest_w: float, mean_w: float) -> Pace:
    """Return the pace at which an operator that draws `power_w` draws `mean_w` on average, or as near as can be."""
    if not mean_w > rest_w:
        return EVEN
    return Pace(min(MAX_REST_SHARE, max(0.0, (power_w - rest_w) / (mean_w - rest_w) - 1)))


def clock_factor(clock_mhz: float | None, program_mhz: float | None, *, heavy: bool) -> tuple[float, float]:
    """Return what turns the energy of a call at one clock into that at the program's, and how far that may be off.

    The energy of a matrix product, and of what else draws more than the power limit, follows the clock (H200: 76 % at
    75 % of it); that of a copy hardly does, and what is neither lies between.
    """
    if not clock_mhz or not program_mhz:
        return 1.0, 0.0
    change, (follows, doubt) = program_mhz / clock_mhz - 1, HEAVY_FOLLOWS if heavy else LIGHT_FOLLOWS
    return 1 + follows * change, abs(doubt * change)
