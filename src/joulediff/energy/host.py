"""What the host spent between its operators: on Python and launches, and on waiting for a device.

All of it is CPU time of the program's process, and CPU seconds are taken to cost alike: what was metered above the
resting power over the CPU time of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from joulediff.energy.activity import Work
from joulediff.energy.calls import Call
from joulediff.energy.sums import to_energy
from joulediff.records import Energy, Source
from joulediff.runs import Run, Wait


def split_host(
    run: Run, metered: Energy, work: Work, calls: Sequence[Call], others: Mapping[int, Energy]
) -> tuple[Energy | None, Energy | None]:
    """Return the energy of Python and launches, and that of waiting; None where the CPU time is not known."""
    cpu_s = None if run.measurement is None else run.measurement.cpu_s
    if work.rest is None or cpu_s is None or not 0.0 < cpu_s < math.inf:
        return None, None
    above_j = max(0.0, metered.joules - work.rest.power_w * work.step_s)
    left_s = max(0.0, cpu_s - _operators_s(work, calls, others, above_j / cpu_s))
    waits_s = min(_waiting_time(run.waits), work.step_s, left_s)
    source: Source = "estimated" if metered.source == "estimated" else "attributed"
    rest_half_w = max(work.rest.high_w - work.rest.power_w, work.rest.power_w - work.rest.low_w)
    half_j = math.hypot(max(metered.high - metered.joules, metered.joules - metered.low), rest_half_w * work.step_s)

    def spend(time_s: float) -> Energy | None:
        joules, each_half_j = above_j * (time_s / cpu_s), half_j * (time_s / cpu_s)
        return to_energy(joules, max(0.0, joules - each_half_j), joules + each_half_j, source)

    return spend(left_s - waits_s), spend(waits_s)


def _operators_s(work: Work, calls: Sequence[Call], others: Mapping[int, Energy], second_w: float) -> float:
    """Return the CPU time of operators: as replayed, else what their energy above rest buys."""
    rest_w = 0.0 if work.rest is None else work.rest.power_w
    times_s = dict(zip(work.kernels, work.times_s, strict=True))

    def bought_s(joules: float, kernels: Iterable[int]) -> float:
        net_j = max(0.0, joules - rest_w * sum(times_s[i] for i in kernels))
        return net_j / second_w if second_w > 0.0 else 0.0

    known_s = [call.cpu_s for call in calls if _is_time(call.cpu_s)]
    unknown_s = [bought_s(call.energy.joules, call.kernels) for call in calls if not _is_time(call.cpu_s)]
    others_s = [bought_s(energy.joules, [i]) for i, energy in others.items()]
    return sum(time_s for time_s in (*known_s, *unknown_s, *others_s) if time_s is not None)


def _waiting_time(waits: Iterable[Wait]) -> float:
    return sum(wait.duration_s for wait in waits if _is_time(wait.duration_s))


def _is_time(time_s: float | None) -> bool:
    return time_s is not None and math.isfinite(time_s) and time_s >= 0.0
