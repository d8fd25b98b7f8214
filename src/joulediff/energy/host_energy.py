"""The energy of a step by the user's functions or lines, for a step without operators: split by the host's samples.

Every sample is in exactly one part, so the parts and the time that was not sampled sum to the step. The power of the
resting machine is split by time, and the rest by CPU time: a part that waits uses none. Where other threads than the
sampled one did much of the work, time splits both: the samples do not show for which line they worked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from joulediff.energy.device_time import is_gpu
from joulediff.energy.host_time import GARBAGE_COLLECTION, function_name, split_path
from joulediff.model.energy import Energy, Source, add, scale
from joulediff.model.run import Frame, HostSample, Run
from joulediff.model.stats import CONFIDENCE_SIGMAS

HostBy = Literal["function", "line"]
_Key = TypeVar("_Key")
# Code that Python runs as a function of its own inside of a function.
_INNER = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
_LOCALS = ".<locals>."
# With more CPU time than this beside the sampled thread's, as a share of it, other threads work for the step.
_THREADS_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class HostPart:
    """A function or a line of the user's, with its share of a step. Time in libraries counts to the line that calls."""

    frame: Frame | None
    """Its line with the most time; a library's function if no own code called it; None for the call of the step."""
    function: str
    """The function of the user's, `GARBAGE_COLLECTION`, or a function of a library if no own code called it."""
    calls: str
    """The function of a library with the most of its time, if that is most of it; else empty."""
    is_step: bool
    """It is the step itself."""
    energy: Energy | None
    time_s: float
    cpu_s: float
    count: int
    """Number of samples."""


def host_parts(run: Run, by: HostBy = "function") -> tuple[HostPart, ...]:
    """Return the functions or the lines of a run with their energy, the most first; empty without samples."""
    sampling = run.sampling
    if sampling is None or not run.host_samples:
        return ()
    groups: dict[tuple[object, ...], list[_Sample]] = {}
    for sample in (_locate(run, each) for each in run.host_samples):
        line = () if by == "function" or sample.frame is None else (sample.frame.line,)
        groups.setdefault((*sample.key, *line), []).append(sample)
    split = _Split.of(run)
    parts = [_to_part(split, group) for group in groups.values()]
    return tuple(sorted(parts, key=lambda part: (-(part.energy.joules if part.energy else 0.0), -part.time_s)))


def host_energy(run: Run) -> Energy | None:
    """Return the part of a step's energy that the host used: all of it without a GPU."""
    found = run.measurement
    if found is None:
        return None
    counted = {name: each for name, each in found.domains.items() if each.counted}
    if not any(map(is_gpu, counted)):
        return found.energy
    return add((name, each.energy) for name, each in counted.items() if not is_gpu(name))


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample, with the function that it belongs to."""

    sample: HostSample
    frame: Frame | None
    function: str
    calls: str
    is_step: bool

    @property
    def key(self) -> tuple[object, ...]:
        return (None if self.frame is None else self.frame.file, self.function)


def _locate(run: Run, sample: HostSample) -> _Sample:
    own, callee = split_path(run.index.path_to(sample.frame))
    frame = own[-1] if own else callee
    if sample.kind == "gc":
        return _Sample(sample, None, GARBAGE_COLLECTION, "", is_step=False)
    if not own:
        return _Sample(sample, frame, function_name(callee) or "(step)", "", is_step=False)
    at = _outermost(own)
    return _Sample(sample, own[-1], own[at].function, function_name(callee), is_step=at == 0)


def _outermost(own: Sequence[Frame]) -> int:
    """Return the place of the function that the innermost frame is written in: of a comprehension, what is around."""
    at = len(own) - 1
    while at > 0 and own[at].function.endswith(_INNER):
        outer = own[at].function.rpartition(_LOCALS)[0]
        around = [i for i in range(at) if (own[i].file, own[i].function) == (own[at].file, outer)]
        if not around:
            break
        at = around[-1]
    return at


@dataclass(frozen=True, slots=True)
class _Split:
    """How the energy of a step is split among samples."""

    total: Energy | None
    rest_share: float
    """The share of the energy that is split by time."""
    step_s: float
    active_s: float
    """The CPU time of a sampled step; that of the time that was not sampled is taken to be in proportion."""
    sample_s: float
    """The time that one sample stands for in a step."""

    @classmethod
    def of(cls, run: Run) -> _Split:
        assert run.sampling is not None
        total, sampling = host_energy(run), run.sampling
        time_s, cpu_s = (sum(getattr(each, name) for each in run.host_samples) for name in ("time_s", "cpu_s"))
        step_s = max(sampling.step_s, time_s)
        active_s = cpu_s * step_s / time_s if time_s > 0 else 0.0
        is_by_time = active_s <= 0 or _has_threads(run, active_s / step_s)
        rest_share = 1.0 if is_by_time else _rest_share(run, total)
        source: Source = "estimated" if total is not None and total.source == "estimated" else "attributed"
        total = None if total is None else replace(total, source=source)
        return cls(total, rest_share, step_s, active_s, sampling.period_s / max(1, sampling.steps))

    def share(self, time_s: float, cpu_s: float) -> float:
        """Return the share of the energy of some samples."""
        by_time = time_s / self.step_s if self.step_s > 0 else 0.0
        if self.rest_share >= 1.0:
            return by_time
        return self.rest_share * by_time + (1 - self.rest_share) * cpu_s / self.active_s

    def energy(self, time_s: float, cpu_s: float, count: int) -> Energy | None:
        """Return the energy of some samples: their number is counted, and varies as that of a part of all."""
        others = max(0.0, 1 - time_s / self.step_s) if self.step_s > 0 else 1.0
        noise_s = min(math.sqrt(count * others) * self.sample_s, time_s)
        share = self.share(time_s, cpu_s)
        error = CONFIDENCE_SIGMAS * share * noise_s / time_s if time_s > 0 else 0.0
        found = scale(self.total, share, error=error)
        return None if found is None else found.not_negative()


def _has_threads(run: Run, busy_share: float) -> bool:
    """Return whether other threads than the sampled one did much of the step's work."""
    found = run.measurement
    if found is None or found.cpu_s is None or not found.step_s > 0:
        return False
    return found.cpu_s / found.step_s > (1 + _THREADS_SHARE) * busy_share


def _rest_share(run: Run, total: Energy | None) -> float:
    """Return the share of the host's energy that the resting machine uses in the same time."""
    found = run.measurement
    if found is None or total is None or not total.joules > 0:
        return 0.0
    domains = (each for name, each in found.domains.items() if each.counted and not is_gpu(name))
    rest_w = sum(each.idle.power_w for each in domains if each.idle is not None)
    return min(1.0, max(0.0, rest_w * found.step_s / total.joules))


def _to_part(split: _Split, group: Sequence[_Sample]) -> HostPart:
    time_s, cpu_s = (sum(getattr(each.sample, name) for each in group) for name in ("time_s", "cpu_s"))
    count = sum(each.sample.count for each in group if each.sample.kind != "gc")
    chief = _most(group, lambda each: each.frame)[0]
    calls, called_s = _most(group, lambda each: each.calls)
    return HostPart(
        chief,
        group[0].function,
        calls if called_s > time_s / 2 else "",
        group[0].is_step,
        split.energy(time_s, cpu_s, count),
        time_s,
        cpu_s,
        sum(each.sample.count for each in group),
    )


def _most(group: Sequence[_Sample], key: Callable[[_Sample], _Key]) -> tuple[_Key, float]:
    """Return the key with the most time among samples, and its time; a frame by its line."""
    times_s: dict[Hashable, float] = {}
    first: dict[Hashable, _Key] = {}
    for each in group:
        found = key(each)
        place: Hashable = (found.file, found.line) if isinstance(found, Frame) else found
        first.setdefault(place, found)
        times_s[place] = times_s.get(place, 0.0) + each.sample.time_s
    most = max(times_s, key=lambda each: times_s[each])
    return first[most], times_s[most]
