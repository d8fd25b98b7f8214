"""Keep a step running, and cut its time into windows at moments when the meters have just been read.

The one measuring loop, for the steps of a program and for bursts of a replayed operator. Within a stretch of windows
the work never stops, so the device never idles because of the measurement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from joulediff.measuring.host_use import PageFaults
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.repeater import Repeater, StepLog
from joulediff.measuring.sampler import Sampler
from joulediff.model.measurement import DeviceState

# Contiguous windows, by their edges; between two stretches the work stood still.
Stretches = Sequence[Sequence[float]]
# What follows a window: the next one, a new stretch after settling again, or nothing.
Next = Literal["window", "stretch", "stop"]


@dataclass(slots=True)
class Windows:
    """The windows of a measurement so far: the work that ran in them, and the devices meanwhile."""

    log: StepLog
    stretches: Stretches = field(default_factory=list)
    clocks_mhz: list[Mapping[str, float]] = field(default_factory=list)
    """The clock of each domain's device, read at every edge."""
    cpu_s: list[list[float]] = field(default_factory=list)
    """CPU seconds of the program until each edge, by stretch; empty if they are not read."""
    faults: list[list[PageFaults]] = field(default_factory=list)
    """Page faults of the program until each edge, by stretch; empty if they are not read."""
    states_before: Sequence[DeviceState] = ()
    states_after: Sequence[DeviceState] = ()

    @property
    def mean_clocks_mhz(self) -> dict[str, float]:
        """Return the mean clock of each domain's device."""
        return mean_clocks(self.clocks_mhz)

    @property
    def cpu_per_step_s(self) -> float | None:
        """Return the CPU seconds of one step; None if no window has them."""
        return self._per_step(self.cpu_s)

    @property
    def minor_faults_per_step(self) -> float | None:
        """Return the page faults of one step that took memory; None if no window has them."""
        return self._per_step([[each.minor for each in stretch] for stretch in self.faults])

    @property
    def major_faults_per_step(self) -> float | None:
        """Return the page faults of one step that read from a disk; None if no window has them."""
        return self._per_step([[each.major for each in stretch] for stretch in self.faults])

    def _per_step(self, so_far: Sequence[Sequence[float]]) -> float | None:
        """Return the growth of a count in one step.

        A program that failed has edges without counts: only windows that have them count.
        """
        grown = steps = 0.0
        for edges_s, counts in zip(self.stretches, so_far, strict=False):
            last = min(len(edges_s), len(counts)) - 1
            if last > 0:
                grown += counts[last] - counts[0]
                steps += self.log.steps_between(edges_s[0], edges_s[last])
        return max(0.0, grown) / steps if steps > 0 else None


class WindowLoop:
    """Runs a step through windows. `windows` holds all that was measured, also after an exception."""

    def __init__(
        self,
        repeater: Repeater,
        sampler: Sampler,
        *,
        clock: Clock,
        read_cpu_s: Callable[[], float] | None = None,
        read_faults: Callable[[], PageFaults | None] | None = None,
    ) -> None:
        self._repeater = repeater
        self._sampler = sampler
        self._clock = clock
        self._read_cpu_s = read_cpu_s
        self._read_faults = read_faults
        self._stretches: list[list[float]] = []
        self.windows = Windows(repeater.log, self._stretches)

    def run(self, *, settle_s: float, window_s: float, after_window: Callable[[int], Next]) -> None:
        """Let the work settle, then run windows of `window_s` until `after_window`, given their number, says stop."""
        self._settle(settle_s)
        self.windows.states_before = self._sampler.states()
        self._begin_stretch()
        done = 0
        while True:
            self._repeater.run_until(self._stretches[-1][-1] + window_s)
            self._add_edge()
            done += 1
            follows = after_window(done)
            if follows == "stop":
                break
            if follows == "stretch":
                self._settle(min(settle_s, window_s / 2))
                self._begin_stretch()
        self.windows.states_after = self._sampler.states()

    def _settle(self, seconds: float) -> None:
        self._repeater.run_until(self._clock.now() + seconds)

    def _begin_stretch(self) -> None:
        self._stretches.append([])
        self.windows.cpu_s.append([])
        self.windows.faults.append([])
        self._add_edge()

    def _add_edge(self) -> None:
        """End a window and begin the next one, right after the meters were read."""
        self.windows.clocks_mhz.append(self._sampler.clocks())  # first, while queued work still keeps the device busy
        self._sampler.edge()
        self._stretches[-1].append(self._clock.now())
        if self._read_cpu_s is not None:
            self.windows.cpu_s[-1].append(self._read_cpu_s())
        faults = None if self._read_faults is None else self._read_faults()
        if faults is not None:
            self.windows.faults[-1].append(faults)


def mean_clocks(seen_mhz: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each domain's clock over the reads that have it."""
    found: dict[str, list[float]] = defaultdict(list)
    for clocks_mhz in seen_mhz:
        for domain, clock_mhz in clocks_mhz.items():
            found[domain].append(clock_mhz)
    return {domain: sum(clocks) / len(clocks) for domain, clocks in found.items()}
