"""Run a replayed operator at the clock the program ran at, and correct its energy where that is not possible.

A GPU is kept at a clock by rests between bursts, which lower the mean power. A program below its power limit runs at
the full clock, so any mean power well below the limit gives that clock too. The clock of a program at its power limit
is searched for by trying mean powers; an operator that draws too little cannot be slowed down to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# A replay counts as one at the program's clock within this.
CLOCK_SHARE = 0.01
# A mean power of this share of the limit leaves the clock alone: an H200 holds 1980 MHz at half of the time busy with a
# matrix product and not at 70 %. The more of the time is busy, the less the samples spread.
HEADROOM = 0.75
# A rest as long as the burst: half of the time busy.
HALF_BUSY = 1.0
MAX_REST_SHARE = 4.0
# A load below this share of the power limit is not slowed down by it, however long it runs.
LIMITLESS_SHARE = 0.85
# How long a load runs to find its power, after the 50 ms of its warm-up.
PROBE_S = 0.06
# How often the mean power is changed in search of the program's clock.
TRIES = 4
# A governor at its limit keeps moving for a while after every change.
SEARCH_S = 0.25
# The part of a change of clock that shows in the energy, and the error of that part.
HEAVY_FOLLOWS = (1.0, 0.25)
LIGHT_FOLLOWS = (0.5, 0.5)
# Calls that take as long as in the program, within this, have the same share of cache hits as there.
ALIKE_SHARE = 0.03
# A call whose time alone differs by more than this from that in the program does so for other reasons than the cache.
MAX_CACHE_SHARE = 0.3

# Runs a load with a given rest share for some seconds; returns about its watts and its clock, None if not known.
Probe = Callable[[float, float], tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class ProgramGpu:
    """The state of a GPU in the metered pass; None for properties that its driver does not report."""

    device: str
    domain: str
    clock_mhz: float | None = None
    power_w: float | None = None
    limit_w: float | None = None
    temperature_c: float | None = None
    full_mhz: float | None = None
    """The clock without any limit."""

    @property
    def slowdown(self) -> float:
        """Return how much longer a kernel may take at the program's clock than at the full one."""
        return max(1.0, self.full_mhz / self.clock_mhz) if self.full_mhz and self.clock_mhz else 1.0

    def is_at_clock(self, clock_mhz: float | None) -> bool:
        """Return whether a clock is that of the program; also if either is not known."""
        return clock_mhz is None or not self.clock_mhz or abs(clock_mhz / self.clock_mhz - 1) <= CLOCK_SHARE


def find_rest_share(gpu: ProgramGpu, rest_w: float, probe: Probe) -> float:
    """Return the rests, as a share of the bursts, that give the program's clock or come close to it."""
    mean_w, clock_mhz = probe(HALF_BUSY, PROBE_S)
    if mean_w is None or gpu.limit_w is None:
        return HALF_BUSY
    power_w, limit_w = rest_w + (mean_w - rest_w) * (1 + HALF_BUSY), HEADROOM * gpu.limit_w
    if not (clock_mhz and gpu.clock_mhz) or clock_mhz <= gpu.clock_mhz * (1 + CLOCK_SHARE):
        return choose_rest_share(power_w, rest_w=rest_w, mean_w=limit_w)
    if power_w < LIMITLESS_SHARE * gpu.limit_w:
        return 0.0
    return _search(gpu, probe, power_w, rest_w, max(limit_w, gpu.power_w or 0.0))


def _search(gpu: ProgramGpu, probe: Probe, power_w: float, rest_w: float, mean_w: float) -> float:
    """Return the rest share whose clock is nearest to that of a program at its power limit."""
    # Half of the time busy is known to give too high a clock.
    low_w, high_w = min(mean_w, rest_w + (power_w - rest_w) / (1 + HALF_BUSY)), power_w
    best, least = HALF_BUSY, math.inf
    for _ in range(TRIES):
        rest_share = choose_rest_share(power_w, rest_w=rest_w, mean_w=mean_w)
        _, clock_mhz = probe(rest_share, SEARCH_S)
        if not (clock_mhz and gpu.clock_mhz):
            break
        off = clock_mhz / gpu.clock_mhz - 1
        if abs(off) < least:
            best, least = rest_share, abs(off)
        if least <= CLOCK_SHARE / 2 or (off > 0 and not rest_share):
            break
        low_w, high_w = (mean_w, high_w) if off > 0 else (low_w, mean_w)
        mean_w = (low_w + high_w) / 2
    return best


def choose_rest_share(power_w: float, *, rest_w: float, mean_w: float) -> float:
    """Return the rest share at which an operator that draws `power_w` draws `mean_w` on average, or nearly so."""
    if not mean_w > rest_w:
        return HALF_BUSY
    return min(MAX_REST_SHARE, max(0.0, (power_w - rest_w) / (mean_w - rest_w) - 1))


def clock_factor(clock_mhz: float | None, program_mhz: float | None, *, heavy: bool) -> tuple[float, float]:
    """Return the factor from the energy of a call at one clock to that at the program's, and its error.

    The energy of a matrix product, and of anything else that draws more than the power limit, follows the clock (H200:
    76 % at 75 % of it). That of a copy hardly does, and other operators lie between.
    """
    if not clock_mhz or not program_mhz:
        return 1.0, 0.0
    change, (follows, error) = program_mhz / clock_mhz - 1, HEAVY_FOLLOWS if heavy else LIGHT_FOLLOWS
    return 1 + follows * change, abs(error * change)


def cache_factor(call_s: float | None, aim_s: float | None, *, slowdown: float = 1.0) -> tuple[float, float]:
    """Return the factor from the energy of a call to that with the program's cache, and its error.

    If a call takes longer alone than in the program, the program had more cache hits: it needed less time at no
    less power, and no more energy. The truth lies between the two; likewise the other way round. A program at its power
    limit may have taken `slowdown` times as long because of its clock alone.
    """
    if not call_s or not aim_s:
        return 1.0, 0.0
    ratio = aim_s / call_s
    change = (max(1.0, ratio / slowdown) if ratio > 1 else ratio) - 1
    beyond = math.copysign(min(MAX_CACHE_SHARE, max(0.0, abs(change) - ALIKE_SHARE)), change)
    return 1 + beyond / 2, abs(beyond) / 2
