"""The interface of a meter: it is polled for new readings of its domains.

A meter never returns 0 for "unknown": a poll returns readings or raises `MeterFailed`. The clock is an argument, so
that tests can use a scripted meter and a fake clock.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from joulediff.model.measurement import DeviceState, Domain, Reading

if TYPE_CHECKING:
    from typing_extensions import Self


class Clock(Protocol):
    """Monotonic seconds, sleeping, and periodic calls."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...
    def every(self, beat: Callable[[], float]) -> Callable[[], None]:
        """Call `beat` now, and again after the seconds that it returns. Return a function that stops this."""


class RealClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def every(self, beat: Callable[[], float]) -> Callable[[], None]:
        stopped = threading.Event()

        def run() -> None:
            while not stopped.wait(beat()):
                pass

        thread = threading.Thread(target=run, name="joulediff-sampler", daemon=True)
        thread.start()

        def stop() -> None:
            stopped.set()
            if threading.current_thread() is not thread:  # a beat may stop itself
                thread.join()

        return stop


class Meter(ABC):
    """A source of readings, used with `with`. Opened by `meters.open_meters`."""

    name: str
    domains: tuple[Domain, ...]
    poll_s: float
    """Seconds between two polls, short enough that no reading is lost."""

    late_s: float = 0.0
    """How late a reading may arrive after its own time stamp, beyond a few periods."""

    @abstractmethod
    def poll(self) -> list[Reading]:
        """Return the readings that are new since the last poll, oldest first for each domain."""

    def check_readings(self) -> list[Reading]:
        """Return readings of a second, costly sensor, taken at the ends of a run to check the first."""
        return []

    def states(self) -> list[DeviceState]:
        """Return the states of the devices now; empty if the meter cannot read them."""
        return []

    def clocks(self) -> dict[str, float]:
        """Return the clock of each domain's device in MHz, if it is known; must be quick, it is called under load."""
        return {}

    def close(self) -> None:  # noqa: B027 - most meters hold nothing
        """Release the device."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
