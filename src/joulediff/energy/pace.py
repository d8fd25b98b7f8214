"""How a replay is paced so that the device runs at the clock it had in the program.

A burst of the operator is followed by rest, which lowers the mean power. At its power limit a device slows down, so
the mean power decides the clock; only an operator that draws more than the limit can be brought below the full one.
"""

from __future__ import annotations

from dataclasses import dataclass

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
