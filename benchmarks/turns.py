"""Compare lengths of windows and turns on stored power samples of an H200: the interval, and the error against 4 s.

    python benchmarks/turns.py

Needs no GPU: it reads `tests/golden/h200_operators.json`. A diff measures each program in two turns; `mean of two` is
the interval of both together. `mm` runs at the power limit, where windows are joined to half a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "measuring"))
from test_golden_h200 import TRACES, log_of, sample_curve

from joulediff.measuring.windows import joules_per_step
from joulediff.model.energy import Energy

SETTLED_S, END_S = 0.5, 4.4
AT_THE_LIMIT = ("mm",)
# The length of each of two turns, and of a window.
KINDS = {
    "3.75 and 1.75 s, 0.5 s windows": ((3.75, 0.536), (1.75, 0.583)),
    "2 x 2 s, 0.5 s windows": ((2.0, 0.5), (2.0, 0.5)),
    "2 x 2 s, 0.25 s windows": ((2.0, 0.25), (2.0, 0.25)),
    "2 x 1 s, 0.25 s windows": ((1.0, 0.25), (1.0, 0.25)),
}


def energy_of(name: str, start_s: float, length_s: float, window_s: float) -> Energy:
    """Return the energy of a step of a stored trace in a part of it."""
    run = TRACES[name][0]
    edges_s = np.linspace(start_s, start_s + length_s, round(length_s / window_s) + 1)
    return joules_per_step(sample_curve(run), log_of(run), [list(edges_s)], capped=name in AT_THE_LIMIT).energy


def main() -> None:
    for name in TRACES:
        reference_j = energy_of(name, SETTLED_S, END_S - SETTLED_S, 4.0).joules
        for kind, turns in KINDS.items():
            found = []
            for at, (length_s, window_s) in enumerate(turns):
                start_s = END_S - length_s if at else SETTLED_S
                found.append(energy_of(name, start_s, length_s, window_s))
            errors = ", ".join(f"{100 * (each.joules / reference_j - 1):+.2f}%" for each in found)
            widths = [each.half_width_share for each in found]
            both = sum(width**2 for width in widths) ** 0.5 / 2
            shown = " and ".join(f"±{100 * width:.2f}%" for width in widths)
            print(f"{name:11} {kind:31} {shown}, mean of two ±{100 * both:.2f}%   error {errors}")


if __name__ == "__main__":
    main()
