"""The timeline of a traced step: when devices were busy or idle, and where the host waited for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.model.run import Frame, Kernel, Run, Wait
from joulediff.report.views.run.facts import line_of


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nothing ran on a device. None is the start or the end of the step."""

    start_s: float
    duration_s: float
    after: Kernel | None
    before: Kernel | None


@dataclass(frozen=True, slots=True)
class Activity:
    """One device in the traced step. `busy_s` is the time in which anything ran on any stream."""

    device: str
    span_s: float
    busy_s: float
    largest_gap: Gap | None

    @property
    def idle_s(self) -> float:
        """Return the time in which nothing ran."""
        return max(0.0, self.span_s - self.busy_s)


@dataclass(frozen=True, slots=True)
class WaitPlace:
    """Waits of one kind at one line; `frame` is None if the line is unknown."""

    name: str
    frame: Frame | None
    calls: int
    wait_s: float


def trace_activity(run: Run) -> tuple[Activity, ...]:
    """Return the activity of each device of the trace, sorted by name."""
    devices = sorted({kernel.device for kernel in run.kernels})
    end_s = max([run.traced_s or 0.0, *(k.start_s + k.duration_s for k in run.kernels)])
    return tuple(_activity(device, [k for k in run.kernels if k.device == device], end_s) for device in devices)


def group_waits(run: Run) -> tuple[WaitPlace, ...]:
    """Return the waits of the host by place, the longest first."""
    places: dict[tuple[str, Frame | None], list[Wait]] = {}
    for wait in run.waits:
        frame = None if wait.op is None else line_of(run, wait.op)
        places.setdefault((wait.name, frame), []).append(wait)
    found = (
        WaitPlace(name, frame, len(waits), sum(w.duration_s for w in waits)) for (name, frame), waits in places.items()
    )
    return tuple(sorted(found, key=lambda place: (-place.wait_s, place.name)))


def _activity(device: str, kernels: Sequence[Kernel], end_s: float) -> Activity:
    busy_s, at_s = 0.0, 0.0
    last: Kernel | None = None
    gaps: list[Gap] = []
    for kernel in sorted(kernels, key=lambda k: (k.start_s, k.duration_s)):
        start_s, stop_s = max(kernel.start_s, at_s), kernel.start_s + kernel.duration_s
        if start_s > at_s:
            gaps.append(Gap(at_s, start_s - at_s, last, kernel))
        if stop_s > start_s:
            busy_s += stop_s - start_s
        if stop_s > at_s or last is None:
            at_s, last = max(at_s, stop_s), kernel
    if end_s > at_s:
        gaps.append(Gap(at_s, end_s - at_s, last, None))
    return Activity(device, end_s, busy_s, max(gaps, key=lambda gap: gap.duration_s, default=None))
