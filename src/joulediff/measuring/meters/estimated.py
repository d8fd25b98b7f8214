"""CPU energy without a sensor: CPU time of this process and its children × watts of a busy core.

It is labelled `estimated` wherever it appears. It counts this program only, so the idle power is zero. Other programs
change it all the same: they share cores, caches and memory with this one.
"""

from __future__ import annotations

import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.model.errors import MeterUnavailable
from joulediff.model.measurement import Domain, Reading

POLL_S = 0.1
# Looking for live children reads a file of /proc for each thread: twice a second is enough.
CHILDREN_EVERY_S = 0.5
TRIES = 3


class EstimatedMeter(Meter):
    """One domain, `cpu`: a counter of CPU seconds × `watts`."""

    name = "estimated"

    def __init__(self, watts: float, note: str, *, clock: Clock, cpu_s: Callable[[], float]) -> None:
        self.watts = watts
        self.poll_s = POLL_S
        self._clock = clock
        self._cpu_s = cpu_s
        self._last_s = 0.0
        self.domains = (
            Domain(
                name="cpu",
                kind="counter",
                device=f"{cpu_model() or 'CPU'}, {watts:.3g} W a busy core assumed",
                key="estimated/cpu",
                period_s=1e-6,
                resolution_j=watts * 1e-6,
                repeat_share=0.01,
                window_s=0.1,
                settle_s=0.05,
                source="estimated",
                note=note,
            ),
        )

    def poll(self) -> list[Reading]:
        start_s = self._clock.now()
        # The time of a child that ends moves from one sum to the other; the total must not decrease meanwhile.
        self._last_s = max(self._last_s, self._cpu_s())
        now_s = self._clock.now()
        return [Reading("cpu", "counter", now_s, self._last_s * self.watts, now_s - start_s)]


class ProcessTime:
    """CPU seconds of this process, the children it has waited for and those still running."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._process = psutil.Process()
        self._children: list[psutil.Process] = []
        self._looked_s = float("-inf")
        self._before_s = self._gained_s = 0.0

    def __call__(self) -> float:
        if self._clock.now() - self._looked_s >= CHILDREN_EVERY_S:
            self._children = self._find_children()
            self._looked_s = self._clock.now()
        now_s = self._children_s()
        # The CPU time of a child that is not waited for disappears when it ends, so decreases are ignored.
        self._gained_s += max(0.0, now_s - self._before_s)
        self._before_s = now_s
        return time.process_time() + self._gained_s

    def _children_s(self) -> float:
        """Return the time of ended and live children, from a moment at which none moved between the two."""
        for _ in range(TRIES):
            ended_s = _ended_s()
            live_s = sum(map(_live_s, self._children))
            if _ended_s() == ended_s:
                break
        return ended_s + live_s

    def _find_children(self) -> list[psutil.Process]:
        pids = _children_from_proc(self._process.pid)
        try:
            if pids is None:
                return self._process.children(recursive=True)
            return [child for pid in pids for child in _with_descendants(pid)]
        except psutil.Error:
            return []


def _ended_s() -> float:
    if sys.platform == "win32":
        return 0.0  # Windows has no such record; children count while they run
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _with_descendants(pid: int) -> list[psutil.Process]:
    try:
        child = psutil.Process(pid)
        return [child, *child.children(recursive=True)]
    except psutil.Error:
        return []


def _children_from_proc(pid: int) -> list[int] | None:
    """Return the direct children from the kernel's own list; None where it keeps none."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return None
    return found


def _live_s(child: psutil.Process) -> float:
    try:
        used = child.cpu_times()
    except psutil.Error:
        return 0.0  # it has ended: its time is in the parent's record of children
    return float(used.user + used.system + getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0))


def cpu_model() -> str:
    """Return the CPU's model name, or an empty string if the system does not report it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def open_estimated(
    *, watts: float | None = None, clock: Clock | None = None, cpu_s: Callable[[], float] | None = None
) -> EstimatedMeter:
    """Return the estimate, with `watts` for a busy core or the CPU model's."""
    if watts is not None and not 0 < watts < 10_000:
        raise MeterUnavailable(
            f"--cpu-watts {watts:g} cannot be the power of one core", fix="give watts between 0 and 10000"
        )
    clock = clock or RealClock()
    model_watts, note = watts_per_core(cpu_model())
    if watts is not None:
        model_watts, note = watts, f"{watts:g} W a busy core, as given with --cpu-watts"
    return EstimatedMeter(model_watts, note, clock=clock, cpu_s=cpu_s or ProcessTime(clock=clock))


# (pattern in the model name, design power in W, physical cores). Entered as commonly stated and not checked
# against data sheets; models made for one cloud (8175M, 8259CL, 8375C, 8488C, 7B12, 7R13, 9R14 ...) have no
# public one, and have the figures of the most similar model.
_MODELS: tuple[tuple[str, float, int], ...] = (
    (r"Xeon.*Platinum 8592", 350, 64),
    (r"Xeon.*Platinum 8480|Xeon.*Platinum 8481", 350, 56),
    (r"Xeon.*Platinum 8488", 385, 48),
    (r"Xeon.*Platinum 8470", 350, 52),
    (r"Xeon.*Platinum 8468", 350, 48),
    (r"Xeon.*Platinum 8462", 300, 32),
    (r"Xeon.*Platinum 8380", 270, 40),
    (r"Xeon.*Platinum 8375", 300, 32),
    (r"Xeon.*Platinum 8358", 250, 32),
    (r"Xeon.*Platinum 8280", 205, 28),
    (r"Xeon.*Platinum 8275", 240, 24),
    (r"Xeon.*Platinum 8259", 210, 24),
    (r"Xeon.*Platinum 8175", 240, 24),
    (r"Xeon.*Gold 6338", 205, 32),
    (r"Xeon.*Gold 6248", 150, 20),
    (r"Xeon.*Gold 6148", 150, 20),
    (r"Xeon.*Silver 4314", 135, 16),
    (r"Xeon.*E5-2699 v4", 145, 22),
    (r"Xeon.*E5-2686 v4", 145, 18),
    (r"EPYC 9654", 360, 96),
    (r"EPYC 9554", 360, 64),
    (r"EPYC 9R14", 360, 96),
    (r"EPYC 7763", 280, 64),
    (r"EPYC 7742", 225, 64),
    (r"EPYC 7R32", 280, 48),
    (r"EPYC 7R13", 225, 48),
    (r"EPYC 7B12", 240, 64),
    (r"EPYC 7B13", 240, 60),
    (r"EPYC 7543", 225, 32),
    (r"Ryzen Threadripper PRO 5995WX", 280, 64),
    (r"Ryzen 9 7950X", 170, 16),
    (r"Ryzen 9 5950X", 105, 16),
    (r"Ryzen 7 5800X", 105, 8),
    (r"i9-14900K|i9-13900K", 125, 24),
    (r"i9-12900K", 125, 16),
    (r"i7-12700K", 125, 12),
    (r"i7-10700K", 125, 8),
    (r"i5-12400", 65, 6),
)

DEFAULT_WATTS_PER_CORE = round(statistics.median(watts / cores for _, watts, cores in _MODELS), 1)


def watts_per_core(model: str) -> tuple[float, str]:
    """Return the watts of one busy core of `model`, and a sentence on where they come from."""
    for pattern, design_w, cores in _MODELS:
        if re.search(pattern, model):
            return design_w / cores, f"{model}: {design_w:g} W design power over {cores} cores"
    return (
        DEFAULT_WATTS_PER_CORE,
        f"{model or 'an unknown CPU'} is not in the table of CPUs: {DEFAULT_WATTS_PER_CORE} W a busy core, its median; "
        "--cpu-watts sets it",
    )
