"""The use of the host while something is measured: CPU time of all programs, lost CPU time, and page faults.

CPU time of the machine that the measured program and its children did not use is that of others. A meter that counts
only the program is disturbed by others too: they share its cores, caches and memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil

from joulediff.measuring.meters.estimated import ProcessTime
from joulediff.measuring.meters.meter import Clock
from joulediff.model.measurement import Condition, Domain

# A quarter of a core of other programs' work changes the power of a package by less than its noise.
OTHERS_CORES = 0.25
# Chosen: an estimate counts the program alone, so on a machine of many cores others disturb it less.
OTHERS_SHARE = 0.1
STOLEN_CORES = 0.1
AT_WORK = ", at work"
_PRESSURE = Path("/proc/pressure/cpu")
_MICROSECOND = 1e-6


class PageFaults(NamedTuple):
    """Page faults of this process: `minor` ones took a page of memory, `major` ones read from a disk."""

    minor: int
    major: int


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU seconds used so far by the whole machine and by this program."""

    machine_s: float
    own_s: float
    stolen_s: float
    """CPU time that the host gave to other virtual machines while this one wanted to run."""
    delayed_s: float | None = None
    """Time in which any thread of the machine waited for a CPU; None where the kernel does not record it."""
    switches: int = 0
    """How often this process lost a CPU that it wanted to keep."""


def read_cpu_use() -> CpuUse:
    """Return the CPU seconds used so far. Children of this program count once they have been waited for."""
    times = psutil.cpu_times()
    resting_s = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    guests_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # already in user and nice
    own = psutil.Process().cpu_times()
    own_s = own.user + own.system + own.children_user + own.children_system
    return CpuUse(sum(times) - resting_s - guests_s, own_s, getattr(times, "steal", 0.0), _delayed_s(), _switches())


class CpuWatch:
    """Reads the CPU seconds used so far, with those of children that still run."""

    def __init__(self, *, clock: Clock) -> None:
        self._own_s = ProcessTime(clock=clock)

    def __call__(self) -> CpuUse:
        return replace(read_cpu_use(), own_s=self._own_s())


def read_page_faults() -> PageFaults | None:
    """Return the page faults of this process so far; None where the system does not count them."""
    try:
        import resource
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    return PageFaults(used.ru_minflt, used.ru_majflt)


def _switches() -> int:
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _delayed_s() -> float | None:
    """Return the total of the line `some` of the kernel's pressure stall information."""
    try:
        first = _PRESSURE.read_text().splitlines()[0]
        return int(first.rpartition("total=")[2]) * _MICROSECOND
    except (OSError, ValueError, IndexError):
        return None


def judge_cpu(
    before: CpuUse, after: CpuUse, seconds: float, *, limit: float = OTHERS_CORES, when: str = ""
) -> Condition:
    """Return whether other programs keep more than `limit` cores busy."""
    others = max(0.0, (after.machine_s - before.machine_s) - (after.own_s - before.own_s)) / max(seconds, 1e-9)
    return Condition(
        f"other programs on the CPU{when}",
        others <= limit,
        f"{others:.2f} cores busy",
        advice=f"other programs keep {others:.1f} cores busy: stop them, or measure when they have finished",
    )


def judge_host(before: CpuUse, after: CpuUse, seconds: float, *, when: str = "") -> Condition:
    """Return whether the host of this virtual machine lets it run."""
    stolen = (after.stolen_s - before.stolen_s) / max(seconds, 1e-9)
    return Condition(
        f"CPU time stolen by the host{when}",
        stolen <= STOLEN_CORES,
        f"{stolen:.2f} cores",
        advice=f"the host of this virtual machine takes {stolen:.1f} cores away, so times will not repeat: try later",
    )


def judge_work(before: CpuUse, after: CpuUse, seconds: float, domains: Iterable[Domain]) -> list[Condition]:
    """Return the conditions of the host while the program ran and `domains` were measured."""
    limit = most_others(domains, os.cpu_count() or 1)
    return [
        judge_cpu(before, after, seconds, limit=limit, when=AT_WORK),
        judge_host(before, after, seconds, when=AT_WORK),
        _delays(before, after, seconds),
    ]


def most_others(domains: Iterable[Domain], cores: int) -> float:
    """Return how many busy cores of other programs leave the total energy of `domains` as it is.

    Estimates are in the total only if nothing is metered.
    """
    found = list(domains)
    metered = [domain for domain in found if domain.source == "metered"]
    if all(domain.name.startswith("gpu") for domain in metered or found):
        return math.inf
    return OTHERS_CORES if metered else max(OTHERS_CORES, OTHERS_SHARE * cores)


def _delays(before: CpuUse, after: CpuUse, seconds: float) -> Condition:
    """Return how often threads waited for a CPU: a fact, since a program's own threads may be the reason."""
    seconds = max(seconds, 1e-9)
    texts = [f"{(after.switches - before.switches) / seconds:.0f} involuntary switches of the program a second"]
    if before.delayed_s is not None and after.delayed_s is not None:
        texts.insert(0, f"in {100 * min(1.0, (after.delayed_s - before.delayed_s) / seconds):.0f}% of the time")
    return Condition(f"threads waiting for a CPU{AT_WORK}", True, ", ".join(texts))
