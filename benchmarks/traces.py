"""What the stored traces of an H200 show: samples against counter, short windows, the governor, the sensor's lag.

    python benchmarks/traces.py

Needs no GPU: it reads `tests/golden/h200_operators.json`, in the same way as the test of these traces.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "measuring"))
from test_golden_h200 import TRACES, log_of, sample_curve, tick_curve

from joulediff.measuring.windows import joules_per_step


def joules(make_curve, run, start_s: float, end_s: float, *, capped: bool = False):
    return joules_per_step(make_curve(run), log_of(run), [[start_s, end_s]], capped=capped)


def off(make_curve, runs, end_s: float, start_s: float = 0.3) -> list[float]:
    """Return how far each short run is from the long one, in percent."""
    reference_j = joules(make_curve, runs[0], 0.5, 4.5).energy.joules
    return [100 * (joules(make_curve, run, start_s, end_s).energy.joules / reference_j - 1) for run in runs[1:]]


def rise_ms(run) -> float:
    """Return how long the samples take to show 95 % of a load that began at 0."""
    idle_w = mean(w for t, w in run["samples"] if t < -0.02)
    level_w = mean(w for t, w in run["samples"] if 0.1 <= t <= 0.25)
    return next(1e3 * t for t, w in run["samples"] if t > 0 and w > idle_w + 0.95 * (level_w - idle_w))


def main() -> None:
    for name, runs in TRACES.items():
        by_samples, by_ticks = (joules(curve, runs[0], 0.5, 4.5).energy.joules for curve in (sample_curve, tick_curve))
        ratio = by_samples / by_ticks
        rises = ", ".join(f"{rise_ms(run):.0f}" for run in runs[1:])
        print(f"{name:11} samples over counter, 4 s: {100 * (ratio - 1):+.3f}%   ms to show 95% of a load: {rises}")
    for name, make_curve in (("samples", sample_curve), ("counter at its ticks", tick_curve)):
        found = [value for runs in TRACES.values() for value in off(make_curve, runs, 1.0)]
        rms = mean(value**2 for value in found) ** 0.5
        print(f"{name}, 0.3 to 1.0 s against 4 s: rms {rms:.2f}%, worst {max(found, key=abs):+.2f}%")
    for end_s in (0.75, 0.8, 0.85, 0.9, 0.95, 1.0):
        values = off(sample_curve, TRACES["mm"], end_s, start_s=0.25)
        widths = [joules(sample_curve, run, 0.25, end_s, capped=True) for run in TRACES["mm"][1:]]
        half = mean(100 * w.energy.half_width_share for w in widths)
        print(f"mm at the power limit, 0.25 to {end_s:.2f} s: " + " ".join(f"{v:+.1f}%" for v in values), end="")
        print(f"   interval ±{half:.1f}%")


if __name__ == "__main__":
    main()
