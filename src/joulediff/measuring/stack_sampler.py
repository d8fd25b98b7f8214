"""Samples the Python stack of the main thread with a timer signal, and times garbage collection.

Python runs a signal handler between two instructions, so right after a function of C returns: the handler sees the line
that called it. A sample counts for every tick of the timer since the last one, so a function of C gets all of its time.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from joulediff.model.errors import JoulediffError
from joulediff.model.run import Frame, HostKind, HostSample
from joulediff.pysource.call_path import CallPaths
from joulediff.pysource.framework_hints import NO_HINTS, FrameworkHints
from joulediff.pysource.programs import Step

# About 1 kHz, and not a simple fraction of the usual times of a step: ticks must not follow the step's own rhythm.
PERIOD_S = 0.000_997


def why_not_sampled() -> str | None:
    """Return why stacks cannot be sampled here; None if they can be."""
    if not hasattr(signal, "setitimer"):
        return "this platform has no timer signal"
    if threading.current_thread() is not threading.main_thread():
        return "the step does not run in the main thread, and only that one handles signals"
    is_free = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    if not is_free or any(signal.getitimer(signal.ITIMER_REAL)):
        return "the program uses the timer signal itself"
    return None


@dataclass(slots=True)
class _Total:
    time_s: float = 0.0
    cpu_s: float = 0.0
    count: int = 0


class StackSampler:
    """Collects the host time of the calls of a step. Outside of `call`, nothing is collected.

    `now` and `cpu_s` return the time, and the CPU time of this thread, in seconds.
    """

    def __init__(
        self,
        *,
        root: Path | None = None,
        hints: FrameworkHints = NO_HINTS,
        period_s: float = PERIOD_S,
        now: Callable[[], float] = time.perf_counter,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._paths = CallPaths(StackSampler.call.__code__, root=root, hints=hints)
        self._period_s = period_s
        self._now = now
        self._cpu_s = cpu_s
        self._begin_s = 0.0
        self._last = (0.0, 0.0)
        self._ticks = 0
        self._collection: tuple[int | None, float, float] | None = None
        self._thread = threading.get_ident()
        self._is_inside = self._is_busy = False
        self._found: dict[tuple[int | None, HostKind], _Total] = {}

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Return the frames that samples refer to."""
        return tuple(self._paths.frames)

    @property
    def files(self) -> Mapping[str, str]:
        """Return the real path of each file of the frames."""
        return self._paths.files

    def call(self, step: Step) -> object:
        """Call the step. Call paths end here."""
        self._is_inside = True
        try:
            return step()
        finally:
            self._is_inside = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample within the context; raises JoulediffError if the program took the signal for itself."""
        before = signal.signal(signal.SIGALRM, self._on_tick)
        # System calls that the signal interrupts are restarted: the program must not see it.
        signal.siginterrupt(signal.SIGALRM, False)
        gc.callbacks.append(self._on_collection)
        self.start()
        signal.setitimer(signal.ITIMER_REAL, self._period_s, self._period_s)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)
            is_ours = signal.getsignal(signal.SIGALRM) == self._on_tick
            if is_ours:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, before)
        if not is_ours:
            raise JoulediffError("the step uses the timer signal itself, so its stacks cannot be sampled")

    def start(self) -> None:
        """Begin to count ticks."""
        self._begin_s, self._ticks = self._now(), 0
        self._last = self._begin_s, self._cpu_s()

    def tick(self, frame: FrameType | None) -> None:
        """Take a sample: the ticks since the last one belong to this frame."""
        now_s, cpu_s = self._now(), self._cpu_s()
        ticks = self._new_ticks(now_s)
        elapsed_s, ran_s = now_s - self._last[0], cpu_s - self._last[1]
        self._last = now_s, cpu_s
        # Collections are timed themselves.
        if self._is_inside and ticks and self._collection is None:
            time_s = ticks * self._period_s
            self._add(self._paths.here(frame), "line", time_s, time_s * min(1.0, ran_s / elapsed_s))

    def collect(self, phase: str, frame: FrameType | None) -> None:
        """Note the begin or the end of a garbage collection in a line of the step."""
        if phase == "start" and self._is_inside:
            self._collection = self._paths.here(frame), self._now(), self._cpu_s()
        elif self._collection is not None:
            place, begin_s, began_s = self._collection
            self._last = self._now(), self._cpu_s()
            self._new_ticks(self._last[0])
            self._add(place, "gc", self._last[0] - begin_s, self._last[1] - began_s)
            self._collection = None

    def samples(self, steps: int) -> tuple[HostSample, ...]:
        """Return the time per step of each line and call path, the longest first."""
        found = [
            HostSample(frame, kind, each.time_s / max(1, steps), each.cpu_s / max(1, steps), each.count)
            for (frame, kind), each in self._found.items()
        ]
        return tuple(sorted(found, key=lambda sample: -sample.time_s))

    def _on_tick(self, _: int, frame: FrameType | None) -> None:
        if self._is_busy:  # a tick during a slow sample: that time is not the program's
            return
        self._is_busy = True
        try:
            self.tick(frame)
        finally:
            self._is_busy = False

    def _on_collection(self, phase: str, _: Mapping[str, int]) -> None:
        if threading.get_ident() == self._thread:
            self.collect(phase, sys._getframe(1))  # noqa: SLF001

    def _new_ticks(self, now_s: float) -> int:
        ticks = int((now_s - self._begin_s) / self._period_s)
        new, self._ticks = ticks - self._ticks, ticks
        return new

    def _add(self, frame: int | None, kind: HostKind, time_s: float, cpu_s: float) -> None:
        total = self._found.setdefault((frame, kind), _Total())
        total.time_s += time_s
        # The thread's CPU clock is read after the other one and may step: a training step on an H200 had -1 µs.
        total.cpu_s += min(max(0.0, cpu_s), time_s)
        total.count += 1
