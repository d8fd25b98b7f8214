"""The joules of replayed operators as the program ran them.

A replay tells the energy of a call above the resting device. In the program the device would have drawn its resting
power meanwhile, so a call's gross energy is that energy + the resting power × the call's own part of the busy time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulediff.energy.activity import Work, find_replays
from joulediff.energy.sums import scale, to_energy
from joulediff.records import Energy
from joulediff.runs import Replay, Run


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a replayed operator in a domain."""

    replay: int
    energy: Energy
    """With the resting power of its time."""
    kernels: Mapping[int, Energy]
    """The same, divided among its kernels by their time."""
    cpu_s: float | None


def find_calls(run: Run, domain: str, work: Work) -> list[Call]:
    """Return the calls of replayed operators that worked in a domain, in the order of their first kernels."""
    replays = find_replays(run, domain)
    calls: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for kernel, time_s in zip(work.kernels, work.times_s, strict=True):
        op = run.kernels[kernel].op
        if op is not None and replays[op] is not None:
            calls[op][kernel] = time_s
    spreads = _spread_of_times(run, replays, calls)
    found = (
        _call(run, replay, calls[op], work, spreads[replay]) for op in calls if (replay := replays[op]) is not None
    )
    return [call for call in found if call is not None]


def _call(run: Run, replay: int, times_s: Mapping[int, float], work: Work, spread: float) -> Call | None:
    net, rest, time_s = _net_energy(run.replays[replay]), work.rest, sum(times_s.values())
    if net is None or rest is None:
        return None
    joules = max(0.0, net.joules + rest.power_w * time_s)
    # Calls of one kind are not quite alike; how unlike, their times in the trace tell.
    below = math.hypot(net.joules - net.low + (rest.power_w - rest.low_w) * time_s, spread * joules)
    above = math.hypot(net.high - net.joules + (rest.high_w - rest.power_w) * time_s, spread * joules)
    energy = to_energy(joules, max(0.0, joules - below), joules + above, net.source)
    if energy is None:
        return None
    shares = {i: part_s / time_s if time_s > 0.0 else 1.0 / len(times_s) for i, part_s in times_s.items()}
    kernels = {i: part for i, share in shares.items() if (part := scale(energy, share)) is not None}
    return Call(replay, energy, kernels, run.replays[replay].cpu_s)


def _net_energy(replay: Replay) -> Energy | None:
    if replay.energy_j is None or replay.low_j is None or replay.high_j is None:
        return None
    return to_energy(replay.energy_j, replay.low_j, replay.high_j, replay.source)


def _spread_of_times(
    run: Run, replays: Sequence[int | None], calls: Mapping[int, Mapping[int, float]]
) -> dict[int, float]:
    """Return the standard deviation of the traced time among the calls of each replay, as a share of their mean."""
    times_s: defaultdict[int, list[float]] = defaultdict(list)
    for op, kernels in calls.items():
        replay = replays[op]
        if replay is not None:
            times_s[replay].append(sum(run.kernels[i].duration_s for i in kernels))
    return {replay: _relative_spread(found) for replay, found in times_s.items()}


def _relative_spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    if not (math.isfinite(mean) and mean > 0.0):
        return 0.0
    # Relative before squared, so that neither the largest nor the smallest floats leave the range.
    return math.sqrt(sum((value / mean - 1.0) * (value / mean - 1.0) for value in values) / len(values))
