"""Measure one program repeatedly: the spread, and whether each interval holds the mean of the others.

python benchmarks/repeat.py [FILE.py[:name]] [--times 10] [--seconds 2] [--meter auto]
"""

from __future__ import annotations

import argparse
import statistics

from joulediff.measuring.meters import open_meters
from joulediff.measuring.step import measure
from joulediff.pysource.programs import load_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default="examples/gelu_fused.py")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--meter", default="auto")
    arguments = parser.parse_args()
    step = load_step(arguments.program)
    found = []
    with open_meters(arguments.meter) as meters:
        for _ in range(arguments.times):
            found.append(measure(step, seconds=arguments.seconds, meter=meters, wait_s=5).energy)
            print(f"{found[-1].joules * 1e3:10.4f} mJ ± {100 * found[-1].half_width_share:.2f}%", flush=True)
    joules = [e.joules for e in found]
    held = 0
    for index, energy in enumerate(found):
        others = statistics.mean(joules[:index] + joules[index + 1 :])
        held += energy.low <= others <= energy.high
    spread = statistics.stdev(joules) / statistics.mean(joules)
    widest = max(joules) / min(joules) - 1
    print(f"{found[0].source}: spread {100 * spread:.2f}% (one sigma), widest {100 * widest:.2f}%, ", end="")
    print(f"{held}/{len(found)} intervals hold the mean of the others")


if __name__ == "__main__":
    main()
