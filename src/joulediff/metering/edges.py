"""What is noted at the edges of the windows beside the meters: clocks of the devices, CPU time of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from joulediff.metering.perstep import Stretches
from joulediff.stability.repeats import Progress


def mean_clocks(seen_mhz: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each domain's clock over the looks that saw it."""
    found: dict[str, list[float]] = defaultdict(list)
    for clocks_mhz in seen_mhz:
        for domain, clock_mhz in clocks_mhz.items():
            found[domain].append(clock_mhz)
    return {domain: sum(clocks) / len(clocks) for domain, clocks in found.items()}


def cpu_per_step(stretches: Stretches, spent_s: Sequence[Sequence[float]], progress: Progress) -> float | None:
    """Return the CPU seconds of one step, from those spent until each edge; None where no window has both.

    A program that broke off has edges without CPU seconds: only windows that have them count.
    """
    cpu_s = steps = 0.0
    for edges_s, seconds in zip(stretches, spent_s, strict=False):
        last = min(len(edges_s), len(seconds)) - 1
        if last > 0:
            cpu_s += seconds[last] - seconds[0]
            steps += float(progress.steps_at(edges_s[last]) - progress.steps_at(edges_s[0]))
    return max(0.0, cpu_s) / steps if steps > 0 else None
