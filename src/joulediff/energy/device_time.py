"""The busy time of each kernel in a meter's domain, in one metered step.

Kernels take as long under a profiler as without; the gaps between them do not, so the length of the step is the
metered one. Operators on the host are slower under a profiler: a replayed operator has the time of its replay. Times
that exceed the metered step are scaled to fit, traced ones first, so busy and idle time always sum to the step.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from joulediff.measuring.meters.powerlog import WHOLE
from joulediff.model.measurement import IdlePower
from joulediff.model.run import Kernel, Run


@dataclass(frozen=True, slots=True)
class Work:
    """The kernels of one domain, by their index in the run, each with its own part of the busy time."""

    kernels: tuple[int, ...]
    times_s: tuple[float, ...]
    step_s: float
    rest: IdlePower | None
    """The power of the resting domain; None if it was not measured."""

    @property
    def busy_s(self) -> float:
        """Return the time of a step in which anything ran."""
        return min(self.step_s, sum(self.times_s))

    @property
    def idle_s(self) -> float:
        """Return the time of a step in which nothing ran."""
        return self.step_s - self.busy_s


def has_trace(run: Run) -> bool:
    """Return whether a step was traced; without a trace no device time is known."""
    return run.traced_s is not None or bool(run.kernels)


def is_gpu(domain: str) -> bool:
    """Return whether a domain is that of a GPU."""
    return re.fullmatch(r"gpu\d{0,9}", domain) is not None


def find_work(run: Run, domain: str) -> Work | None:
    """Return the kernels that ran in a domain with their times; None if the recording does not show them."""
    step_s = math.nan if run.measurement is None else run.measurement.step_s
    if not (math.isfinite(step_s) and step_s > 0.0 and has_trace(run)) or domain.rstrip("0123456789").lower() in WHOLE:
        return None
    indices = _kernels_on_gpu(run, domain) if is_gpu(domain) else _kernels_on_host(run)
    if indices is None:
        return None
    traced_s = shared_times([run.kernels[i] for i in indices])
    replayed_s = [None] * len(indices) if is_gpu(domain) else _replayed_times(run, domain, indices)
    times_s = _fit(traced_s, replayed_s, step_s)
    if not math.isfinite(sum(times_s)):
        return None
    return Work(tuple(indices), tuple(times_s), step_s, _rest_power(run, domain))


def shared_times(kernels: Sequence[Kernel]) -> list[float]:
    """Return each kernel's own part of its device's busy time; kernels that run at once share it equally.

    The parts of a device sum to the time in which anything ran on it. They are NaN if a kernel has no valid time.
    """
    devices: defaultdict[str, list[int]] = defaultdict(list)
    for i, kernel in enumerate(kernels):
        devices[kernel.device].append(i)
    found = np.full(len(kernels), np.nan)
    for indices in devices.values():
        start_s = np.array([kernels[i].start_s for i in indices], dtype=float)
        duration_s = np.array([kernels[i].duration_s for i in indices], dtype=float)
        with np.errstate(all="ignore"):
            found[indices] = _share_time(start_s, duration_s)
    return [float(time_s) for time_s in found]


def find_replays(run: Run, domain: str) -> list[int | None]:
    """Return for each operator the index of its replay in that domain."""
    by_first: dict[int, int] = {}
    first = 0
    for i, replay in enumerate(run.replays):
        first = first if run.replays[first].op == replay.op else i
        if replay.domain == domain:
            by_first.setdefault(first, i)
    return [None if op.replay is None else by_first.get(op.replay) for op in run.ops]


def _share_time(start_s: np.ndarray, duration_s: np.ndarray) -> np.ndarray:
    """Sweep over the edges: the integral of 1 / (kernels at work), read at the two ends of each kernel."""
    end_s = start_s + duration_s
    if not (np.isfinite(start_s).all() and np.isfinite(end_s).all() and (duration_s >= 0.0).all()):
        return np.full(len(start_s), np.nan)
    # The step begins at 0: earlier work is not part of it.
    start_s, end_s = np.maximum(start_s, 0.0), np.maximum(end_s, 0.0)
    edge_s = np.unique(np.concatenate([start_s, end_s]))
    begins, ends = np.searchsorted(edge_s, start_s), np.searchsorted(edge_s, end_s)
    changes = np.bincount(begins, minlength=len(edge_s)) - np.bincount(ends, minlength=len(edge_s))
    at_work = np.cumsum(changes)[:-1]
    own_s = np.where(at_work > 0, np.diff(edge_s) / np.maximum(at_work, 1), 0.0)
    until_s = np.concatenate([[0.0], np.cumsum(own_s)])
    return np.asarray(until_s[ends] - until_s[begins])


def _kernels_on_gpu(run: Run, domain: str) -> list[int] | None:
    index = int(domain.removeprefix("gpu") or 0)
    found = [i for i, k in enumerate(run.kernels) if k.kind != "cpu" and _is_device(k.device, index)]
    # Without a kernel the GPU either rested or was not traced: it rested if all recorded operators ran elsewhere.
    ran_elsewhere = bool(run.ops) and not any(_is_device(op.device, index) for op in run.ops)
    return found if found or ran_elsewhere else None


def _kernels_on_host(run: Run) -> list[int]:
    return [i for i, kernel in enumerate(run.kernels) if kernel.kind == "cpu"]


def _is_device(name: str, index: int) -> bool:
    kind, _, number = name.partition(":")
    return kind not in ("cpu", "meta") and (number or "0") == str(index)


def _fit(traced_s: Sequence[float], replayed_s: Sequence[float | None], step_s: float) -> list[float]:
    """Return times that fit into a step: the replayed time of a kernel if there is one, else the traced one.

    If they are too long, traced times are scaled to the time left: replayed ones were measured without the profiler.
    """
    pairs = list(zip(traced_s, replayed_s, strict=True))
    measured_s = sum(again_s for again_s in replayed_s if again_s is not None)
    others_s = sum(time_s for time_s, again_s in pairs if again_s is None)
    total_s = measured_s + others_s
    if not total_s > step_s:
        return [time_s if again_s is None else again_s for time_s, again_s in pairs]
    if measured_s >= step_s:
        return [(time_s if again_s is None else again_s) / total_s * step_s for time_s, again_s in pairs]
    return [time_s / others_s * (step_s - measured_s) if again_s is None else again_s for time_s, again_s in pairs]


def _replayed_times(run: Run, domain: str, indices: Sequence[int]) -> list[float | None]:
    """Return the replayed times of host kernels: the kernels of one operator share that of the call."""
    replays, kernels = find_replays(run, domain), defaultdict[int, int](int)
    for i in indices:
        op = run.kernels[i].op
        if op is not None:
            kernels[op] += 1
    found: list[float | None] = [None] * len(indices)
    for at, i in enumerate(indices):
        op = run.kernels[i].op
        replay = None if op is None else replays[op]
        call_s = None if replay is None else run.replays[replay].call_s
        if op is not None and call_s is not None and math.isfinite(call_s) and call_s >= 0.0:
            found[at] = call_s / kernels[op]
    return found


def _rest_power(run: Run, domain: str) -> IdlePower | None:
    """Return the measured idle power, else that of replays; 0 W for an estimate, which counts the program alone."""
    measured = run.measurement.domains.get(domain) if run.measurement is not None else None
    if measured is not None and measured.idle is not None:
        return _sound_power(measured.idle)
    seen = [r.rest_w for r in run.replays if r.domain == domain and r.rest_w is not None]
    if seen:
        middle = sorted(seen)[len(seen) // 2]  # a mean of two could exceed the largest float
        return _sound_power(IdlePower(middle, min(seen), max(seen), 0.0, 0.0))
    if measured is not None and measured.energy.source == "estimated":
        return IdlePower(0.0, 0.0, 0.0, 0.0, 0.0)
    return None


def _sound_power(idle: IdlePower) -> IdlePower | None:
    if not (math.isfinite(idle.low_w) and math.isfinite(idle.power_w) and math.isfinite(idle.high_w)):
        return None
    low_w, power_w, high_w = (max(0.0, watts) for watts in (idle.low_w, idle.power_w, idle.high_w))
    return replace(idle, low_w=min(low_w, power_w), power_w=power_w, high_w=max(power_w, high_w))
