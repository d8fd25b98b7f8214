"""Poll meters in the background and keep their readings.

The sampler never stops the program: a meter that fails is noted in `failures`, its readings so far are kept, and the
others go on. The CPU time of polling is counted, because it costs energy too.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from joulediff.measuring.energy_curve import Curve, check_order
from joulediff.measuring.meters.meter import Clock, Meter
from joulediff.model.errors import MeterFailed, NotCovered
from joulediff.model.measurement import DeviceState, Domain, Reading

# `catch_up` waits this many periods for a buffered reading.
LATE_PERIODS = 4
LATE_AT_LEAST_S = 0.05


class Sampler:
    """Readings of several meters, from `__enter__` to `__exit__`."""

    def __init__(self, meters: Sequence[Meter], *, clock: Clock) -> None:
        self._meters = list(meters)
        self._clock = clock
        self._lock = threading.Lock()
        self._domains = {(d.name, d.kind): d for meter in self._meters for d in meter.domains}
        self._readings: dict[tuple[str, str], list[Reading]] = defaultdict(list)
        self._due_s = dict.fromkeys(range(len(self._meters)), float("-inf"))
        self._stop: Callable[[], None] | None = None
        self._started_s = 0.0
        self._cpu_s = 0.0
        self.failures: dict[str, MeterFailed] = {}

    def __enter__(self) -> Sampler:
        self._started_s = self._clock.now()
        self._stop = self._clock.every(self._beat)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def _beat(self) -> float:
        with self._lock:
            for index, meter in enumerate(self._meters):
                if self._clock.now() >= self._due_s[index]:
                    self._poll(meter)
                    self._due_s[index] = self._clock.now() + meter.poll_s
        return max(0.0005, min(self._due_s.values(), default=1.0) - self._clock.now())

    def _poll(self, meter: Meter) -> None:
        if meter.name in self.failures:
            return
        start_s = time.thread_time()
        self._take(meter, meter.poll)
        self._cpu_s += time.thread_time() - start_s

    def _take(self, meter: Meter, look: Callable[[], Sequence[Reading]]) -> None:
        try:
            self._keep(look())
        except MeterFailed as error:
            self.failures[meter.name] = error
        except Exception as error:  # noqa: BLE001 - a vendor's library may raise anything; it must not end the thread
            self.failures[meter.name] = MeterFailed(f"it failed with {type(error).__name__}: {error}")

    def _keep(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            kept = self._readings[reading.domain, reading.kind]
            if kept:
                check_order(self._domains[reading.domain, reading.kind], kept[-1], reading)
            kept.append(reading)

    def check(self) -> None:
        """Read the second sensors, which are costly, now."""
        with self._lock:
            for meter in self._meters:
                if meter.name not in self.failures:
                    self._take(meter, meter.check_readings)

    def edge(self) -> None:
        """Poll every meter now, so that a window can end here."""
        with self._lock:
            for meter in self._meters:
                self._poll(meter)

    def touch(self) -> None:
        """Poll the meters whose counters change faster than they are polled, which is quick: a reading is new here."""
        with self._lock:
            for meter in self._meters:
                if all(domain.kind == "counter" and domain.period_s < meter.poll_s for domain in meter.domains):
                    self._poll(meter)

    def forget(self, before_s: float) -> None:
        """Drop the readings before a moment, but for the last two before it."""
        with self._lock:
            for kept in self._readings.values():
                old = bisect_right(kept, before_s, key=lambda reading: reading.time_s)
                del kept[: max(0, old - 2)]

    def has_failed(self, domain: Domain) -> bool:
        """Return whether the meter of a domain has failed: there will be no readings any more."""
        return any(meter.name in self.failures for meter in self._meters if domain in meter.domains)

    def catch_up(self, until_s: float) -> None:
        """Wait until every meter has readings up to `until_s`, or is too late for them."""
        for meter in self._meters:
            late_s = max([LATE_AT_LEAST_S, meter.late_s, *(LATE_PERIODS * d.period_s for d in meter.domains)])
            while meter.name not in self.failures:
                with self._lock:
                    self._poll(meter)
                    newest_s = min((self._newest_s(d) for d in _primary(meter)), default=until_s)
                if newest_s >= until_s or self._clock.now() > until_s + late_s:
                    break
                self._clock.sleep(max(0.002, min(d.period_s for d in meter.domains) / 4))

    def _newest_s(self, domain: Domain) -> float:
        readings = self._readings.get((domain.name, domain.kind))
        return readings[-1].time_s if readings else float("-inf")

    def readings(self, domain: Domain) -> list[Reading]:
        """Return a copy of a domain's readings so far."""
        with self._lock:
            return list(self._readings[domain.name, domain.kind])

    def curve(self, domain: Domain) -> Curve:
        """Return the energy curve of a domain. Raises if its readings are too few or contradict themselves."""
        meter = next(m for m in self._meters if domain in m.domains)
        readings = self.readings(domain)
        try:
            return Curve.from_readings(domain, readings)
        except NotCovered:
            if meter.name in self.failures:
                raise self.failures[meter.name] from None
            raise

    def stood_still(self, domain: Domain, start_s: float, end_s: float) -> bool:
        """Return whether a counter was read all the time and never changed: the energy is below its resolution."""
        inside = [r for r in self.readings(domain) if start_s <= r.time_s <= end_s]
        if domain.kind != "counter" or len(inside) < 2 or inside[-1].value != inside[0].value:
            return False
        return inside[-1].time_s - inside[0].time_s >= 0.5 * (end_s - start_s)

    def primary_domains(self) -> list[Domain]:
        """Return the domains that energy is taken from: the first sensor of each name."""
        return [domain for meter in self._meters for domain in _primary(meter)]

    def check_domains(self) -> list[Domain]:
        """Return the second sensors, which only check the first."""
        primary = self.primary_domains()
        return [d for meter in self._meters for d in meter.domains if d not in primary]

    def states(self) -> list[DeviceState]:
        """Return the devices' states now."""
        return [state for meter in self._meters if meter.name not in self.failures for state in meter.states()]

    def clocks(self) -> dict[str, float]:
        """Return the devices' clocks in MHz now, by domain."""
        found = {}
        for meter in self._meters:
            if meter.name not in self.failures:
                # A vendor's library may raise anything, and the clock is not needed for the energy.
                with suppress(Exception):
                    found.update(meter.clocks())
        return found

    @property
    def meter_count(self) -> int:
        """How many meters are sampled."""
        return len(self._meters)

    @property
    def cpu_s(self) -> float:
        """CPU time spent on polling so far, in whichever thread."""
        return self._cpu_s

    @property
    def cpu_share(self) -> float:
        """CPU time spent on polling so far, as a share of one core."""
        return self._cpu_s / max(1e-9, self._clock.now() - self._started_s)


def _primary(meter: Meter) -> list[Domain]:
    first: dict[str, Domain] = {}
    for domain in meter.domains:
        first.setdefault(domain.name, domain)
    return list(first.values())
