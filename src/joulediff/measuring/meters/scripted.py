"""A meter that plays readings from a list or a file, and a clock that tests advance.

Ships with the package: the tests use it for every device, and `--meter scripted:FILE` replays
a recorded trace. A script that has ended is a meter that died: it raises, it does not answer 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import DeviceState, Domain, Kind, Reading

SCHEMA = "joulediff.script/1"
# A script is a test or a trace of minutes; a larger file is refused.
MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_SETTLE_S = 10.0


class FakeClock:
    """Time that passes only by `sleep` and `advance`; due beats run on the way."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._beats: dict[int, tuple[float, Callable[[], float]]] = {}
        self._next_id = 0

    def now(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass, running each beat at its own moment."""
        end_s = self._now_s + seconds
        while due := [(when, key) for key, (when, _) in self._beats.items() if when <= end_s]:
            when_s, key = min(due)
            self._now_s = max(self._now_s, when_s)
            beat = self._beats[key][1]
            # A beat may let time pass itself; it is not due again before it has returned.
            self._beats[key] = (float("inf"), beat)
            pause_s = beat()
            if key in self._beats:
                self._beats[key] = (self._now_s + max(pause_s, 1e-6), beat)
        self._now_s = max(self._now_s, end_s)

    def every(self, beat: Callable[[], float]) -> Callable[[], None]:
        key, self._next_id = self._next_id, self._next_id + 1
        pause_s = beat()
        self._beats[key] = (self._now_s + max(pause_s, 1e-6), beat)
        return lambda: self._beats.pop(key, None) and None


class ScriptedMeter(Meter):
    """Plays `readings`, whose times count from the moment the meter was opened."""

    name = "scripted"

    def __init__(
        self,
        domains: Sequence[Domain],
        readings: Sequence[Reading],
        *,
        clock: Clock,
        states: Sequence[DeviceState] = (),
        poll_s: float = 0.02,
        dies_at_s: float | None = None,
    ) -> None:
        self.domains = tuple(domains)
        self.poll_s = poll_s
        self._readings = sorted(readings, key=lambda r: r.time_s)
        self._states = list(states)
        self._clock = clock
        self._opened_s = clock.now()
        self._dies_at_s = dies_at_s
        self._next = 0

    def poll(self) -> list[Reading]:
        now_s = self._clock.now() - self._opened_s
        if self._dies_at_s is not None and now_s >= self._dies_at_s:
            raise MeterFailed(f"the scripted meter died at {self._dies_at_s:.3f} s, as its script says")
        if self._next >= len(self._readings):
            raise MeterFailed(f"the script of the meter ended before {now_s:.3f} s", fix="record a longer script")
        new = []
        while self._next < len(self._readings) and self._readings[self._next].time_s <= now_s:
            reading = self._readings[self._next]
            new.append(replace(reading, time_s=reading.time_s + self._opened_s))
            self._next += 1
        return new

    def states(self) -> list[DeviceState]:
        return list(self._states)

    def clocks(self) -> dict[str, float]:
        return {state.domain: state.clock_mhz for state in self._states if state.clock_mhz is not None}


def save_script(path: Path, domains: Sequence[Domain], readings: Sequence[Reading]) -> None:
    """Write a script that `open_scripted` plays."""
    rows = [[r.domain, r.kind, r.time_s, r.value, r.within_s] for r in readings]
    path.write_text(json.dumps({"schema": SCHEMA, "domains": [asdict(d) for d in domains], "readings": rows}))


def open_scripted(path: Path, *, clock: Clock | None = None) -> ScriptedMeter:
    """Return a meter that plays the script in `path`."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise MeterUnavailable(f"{path}: larger than {MAX_FILE_BYTES} bytes, so it is not a script of readings")
        script = json.loads(path.read_text())
    except OSError as error:
        raise MeterUnavailable(f"{path}: cannot read the script ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise MeterUnavailable(f"{path}: not JSON ({error})") from error
    if not isinstance(script, dict) or script.get("schema") != SCHEMA:
        raise MeterUnavailable(f'{path}: not a script of readings: it needs "schema": "{SCHEMA}"')
    try:
        domains = [_domain(row) for row in script["domains"]]
        known = {(domain.name, domain.kind) for domain in domains}
        readings = [_reading(row, known) for row in script["readings"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MeterUnavailable(f"{path}: a row of the script is broken ({error!r})") from error
    return ScriptedMeter(domains, readings, clock=clock or RealClock())


def _domain(row: Any) -> Domain:
    if not isinstance(row, dict):
        raise TypeError(f"a domain is an object, not {row!r:.40}")
    known = {field.name for field in fields(Domain)}
    numbers = {key: _number(row[key]) for key in ("period_s", "resolution_j", "repeat_share", "window_s")}
    numbers["settle_s"] = _number(row.get("settle_s", 0.0))
    if min(numbers["period_s"], numbers["window_s"]) <= 0 or not 0 <= numbers["settle_s"] <= MAX_SETTLE_S:
        raise ValueError(f"periods and windows must be positive, and settling at most {MAX_SETTLE_S:g} s")
    domain = Domain(**{key: value for key, value in {**row, **numbers}.items() if key in known})
    if domain.kind not in get_args(Kind):
        raise ValueError(f"a domain is one of {get_args(Kind)}, not {domain.kind!r:.40}")
    return domain


def _reading(row: Any, known: set[tuple[str, Kind]]) -> Reading:
    name, kind, *numbers = row
    if (name, kind) not in known:
        raise ValueError(f"no domain {name!r:.40} of kind {kind!r:.40}")
    time_s, value, within_s = map(_number, numbers)
    return Reading(name, kind, time_s, value, within_s)


def _number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a valid number")
    return float(value)
