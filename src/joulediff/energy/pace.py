"""How a replay is paced so that the device runs at the clock it had in the program.

A burst of the operator is followed by rest, which lowers the mean power, or by bursts of a heavy operator, the ballast,
which raise it. At its power limit a device slows down for everything that runs, so the mean power decides the clock.
"""

from __future__ import annotations

from dataclasses import dataclass

# A replay counts as one at the program's clock within this.
CLOCK_SHARE = 0.01
# As much power as leaves the clock alone: an H200 holds 1980 MHz at 70 % of the time busy with a matrix product no
# more, at 50 % always. The more of the time is busy, the less the samples spread.
HEADROOM = 0.75
MAX_REST_SHARE = 4.0
MAX_BURSTS = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """So many bursts of the operator, a rest as a share of the time of one, and so many bursts of ballast."""

    bursts: int = 1
    rest_share: float = 1.0
    ballast: int = 0


# Half of the time busy.
EVEN = Pace()


@dataclass(frozen=True, slots=True)
class Draw:
    """What a load draws while it runs, and how long its burst is."""

    power_w: float
    burst_s: float


def choose_pace(op: Draw, *, rest_w: float, mean_w: float, ballast: Draw | None = None) -> Pace:
    """Return the pace at which an operator draws `mean_w` on average, or as near as it can come."""
    if not mean_w > rest_w:
        return EVEN
    if op.power_w > mean_w:
        return Pace(1, min(MAX_REST_SHARE, (op.power_w - rest_w) / (mean_w - rest_w) - 1))
    if ballast is None or ballast.power_w <= op.power_w:
        return Pace(1, 0.0)
    mean_w = min(mean_w, ballast.power_w - (ballast.power_w - op.power_w) / (2 * MAX_BURSTS))
    wanted = (mean_w - op.power_w) / (ballast.power_w - mean_w) * op.burst_s / ballast.burst_s
    choices = [(a, b) for a in range(1, MAX_BURSTS + 1) for b in range(MAX_BURSTS + 1)]
    bursts, many = min(choices, key=lambda pair: (abs(pair[1] / pair[0] - wanted), pair))
    return Pace(bursts, 0.0, many)
