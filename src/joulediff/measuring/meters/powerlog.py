"""An external power meter, through the CSV file that it writes during the measurement.

The log has its own clock: its stamps plus `offset_s` are this machine's wall clock, and the
distance from there to our clock is taken once, at opening, so that a later step of the wall clock
cannot tear the curve.
"""

from __future__ import annotations

import csv
import math
import os
import re
import stat
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import Domain, Reading

MAX_LINE_BYTES = 4096
# A poll reads at most this much; the rest is left for the next poll.
CHUNK_BYTES = 1 << 20
# Rows from before the opening that are kept for each domain: a minute of a fast meter.
KEPT_ROWS = 10_000
MIN_ROWS = 3
REPEAT_SHARE = 0.01
FASTEST_POLL_S = 0.02
SLOWEST_POLL_S = 0.5
# Programs that write logs flush them every few seconds.
LATE_S = 10.0
STALE_PERIODS = 5
# Clocks that are set over a network agree better than this.
FUTURE_S = 5.0
WHOLE = frozenset({"wall", "psys", "system", "machine", "total", "node"})


class _BadLog(Exception):
    """An error in the log, with its place."""


class _Log:
    """The rows appended to a file since the last read. An incomplete line is read once it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parser = RowParser()
        self._line = 0
        self._rest = b""
        try:
            # A pipe or a terminal would block here, and has no end to read up to.
            if not stat.S_ISREG(path.stat().st_mode):
                raise _BadLog(f"{path} is not a file")
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise _BadLog(f"{path} cannot be opened ({error.strerror})") from error

    def close(self) -> None:
        self._file.close()

    def all_rows(self) -> Iterator[Row]:
        """Yield the rows up to the end of the file."""
        while lines := self._new_lines():
            yield from self._parse(lines)

    def new_rows(self) -> Iterator[Row]:
        """Yield the rows of at most one chunk."""
        yield from self._parse(self._new_lines())

    def _parse(self, lines: Sequence[bytes]) -> Iterator[Row]:
        for line in lines:
            self._line += 1
            try:
                row = self.parser.read(_decode(line))
            except ValueError as error:
                raise _BadLog(f"{self.path}, line {self._line}: {error}") from error
            if row is not None:
                yield row

    def _new_lines(self) -> list[bytes]:
        try:
            self._refuse_change()
            chunk = self._file.read(CHUNK_BYTES) or b""
        except OSError as error:
            raise _BadLog(f"{self.path} cannot be read any more ({error.strerror})") from error
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for number, line in enumerate((*lines, self._rest), self._line + 1):
            if len(line) > MAX_LINE_BYTES:
                raise _BadLog(f"{self.path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
        return lines

    def _refuse_change(self) -> None:
        ours, named = os.fstat(self._file.fileno()), self.path.stat()
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
            raise _BadLog(f"{self.path} was replaced by another file after line {self._line}")
        if ours.st_size < self._file.tell():
            raise _BadLog(f"{self.path} was cut short after line {self._line}")


class PowerLogMeter(Meter):
    """The domains of one log; the first poll also returns the rows from before the opening."""

    name = "powerlog"
    late_s = LATE_S

    def __init__(self, log: _Log, domains: Sequence[Domain], rows: Sequence[Row], *, to_clock_s: float) -> None:
        self.domains = tuple(domains)
        self.poll_s = min(max(min(d.period_s for d in domains) / 2, FASTEST_POLL_S), SLOWEST_POLL_S)
        self._log = log
        self._waiting = list(rows)
        self._to_clock_s = to_clock_s
        self._broken: _BadLog | None = None

    def poll(self) -> list[Reading]:
        if self._broken is not None:
            raise self._failure(self._broken)
        rows, self._waiting = self._waiting, []
        try:
            for row in self._log.new_rows():
                rows.append(row)
        except _BadLog as error:
            # The rows before the bad line are valid: they are returned, and the next poll raises.
            self._broken = error
            if not rows:
                raise self._failure(error) from error
        return [Reading(row.domain, "power", row.time_s + self._to_clock_s, row.power_w) for row in rows]

    @staticmethod
    def _failure(error: _BadLog) -> MeterFailed:
        return MeterFailed(str(error), fix="check the program that writes the log, then measure again")

    def close(self) -> None:
        self._log.close()


def open_powerlog(
    path: Path,
    *,
    offset_s: float = 0.0,
    clock: Clock | None = None,
    wall_s: Callable[[], float] = time.time,
) -> PowerLogMeter:
    """Return a meter that follows the log in `path`, whose clock is `offset_s` behind this machine's."""
    if not math.isfinite(offset_s):
        raise MeterUnavailable(f"the clock of a log cannot be {offset_s} s off", fix="give a number of seconds")
    to_clock_s = offset_s + (clock or RealClock()).now() - wall_s()
    try:
        log = _Log(path)
    except _BadLog as error:
        raise MeterUnavailable(str(error), fix="name the CSV file that the power meter writes") from error
    try:
        rows = _rows_so_far(log)
        domains = [_learn(path, name, kept) for name, kept in rows.items()]
        for domain in domains:
            _refuse_stale(path, wall_s() - offset_s - rows[domain.name][-1].time_s, domain.period_s)
    except _BadLog as error:
        log.close()
        raise MeterUnavailable(str(error), fix="the log is CSV: columns time, watts and, if any, domain") from error
    except MeterUnavailable:
        log.close()
        raise
    log.parser.close_domains()
    return PowerLogMeter(log, domains, [row for kept in rows.values() for row in kept], to_clock_s=to_clock_s)


def _rows_so_far(log: _Log) -> dict[str, deque[Row]]:
    rows: dict[str, deque[Row]] = defaultdict(lambda: deque(maxlen=KEPT_ROWS))
    for row in log.all_rows():
        rows[row.domain].append(row)
    if not log.parser.has_header:
        raise _BadLog(f"{log.path} is empty: it holds no complete line")
    if not rows:
        raise _not_running(log.path, "no rows")
    return rows


def _learn(path: Path, name: str, rows: Sequence[Row]) -> Domain:
    if len(rows) < MIN_ROWS:
        raise _not_running(path, f"{len(rows)} rows of {name}")
    period_s = median(after.time_s - before.time_s for before, after in pairwise(rows))
    steps_w = [abs(after.power_w - before.power_w) for before, after in pairwise(rows)]
    return Domain(
        name=name,
        kind="power",
        device=f"power log {path.name}",
        key=f"powerlog/{path.absolute()}/{name}",
        period_s=period_s,
        resolution_j=period_s * min(filter(None, steps_w), default=0.0),
        repeat_share=REPEAT_SHARE,
        window_s=max(0.5, 10 * period_s),
        settle_s=max(0.25, 2 * period_s),
        whole=name.lower() in WHOLE,
    )


def _refuse_stale(path: Path, age_s: float, period_s: float) -> None:
    if -FUTURE_S <= age_s <= LATE_S + STALE_PERIODS * period_s:
        return
    when = f"{age_s:.0f} s old" if age_s > 0 else f"{-age_s:.0f} s ahead of this machine's clock"
    raise MeterUnavailable(
        f"the newest row of {path} is {when}",
        fix="start the log, or give the offset of its clock with --clock-offset",
    )


def _not_running(path: Path, found: str) -> MeterUnavailable:
    return MeterUnavailable(
        f"{path} has {found}, and {MIN_ROWS} are needed to find its period",
        fix="the log must be running: start it first, and let it write a few rows",
    )


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8 text") from error


Column = Literal["time", "watts", "domain"]

DEFAULT_DOMAIN = "wall"
# A rack's meter has a few dozen outlets; a column with more names is not a column of domains.
MAX_DOMAINS = 64
MAX_NAME_CHARS = 64
# Year 5138 in seconds: a larger number is a time in milliseconds or finer.
MAX_TIME_S = 1e11

_COLUMNS: dict[Column, tuple[str, ...]] = {
    "time": ("time", "time_s", "timestamp"),
    "watts": ("watts", "power", "power_w", "w"),
    "domain": ("domain",),
}
_FRACTION = re.compile(r"\.(\d+)")
_SHORT_OFFSET = re.compile(r"(\d[+-]\d\d)(\d\d)$")


@dataclass(frozen=True, slots=True)
class Row:
    """One power sample, at the log's own time (seconds since 1970)."""

    domain: str
    time_s: float
    power_w: float


class RowParser:
    """Reads a log line by line: the header first, then rows whose time advances for each domain."""

    def __init__(self) -> None:
        self._columns: dict[Column, int] | None = None
        self._width = 0
        self._last_s: dict[str, float] = {}
        self._is_closed = False

    @property
    def has_header(self) -> bool:
        return self._columns is not None

    def close_domains(self) -> None:
        """Raise for every new domain from now on."""
        self._is_closed = True

    def read(self, line: str) -> Row | None:
        """Return the row in `line`, or None for the header and for an empty line."""
        if not line.strip():
            return None
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], strict=True))]
        except csv.Error as error:
            raise ValueError(f"not a line of CSV ({error})") from error
        if self._columns is None:
            self._columns, self._width = _find_columns(cells), len(cells)
            return None
        if len(cells) != self._width:
            raise ValueError(f"the row has {len(cells)} columns, the header {self._width}")
        return self._check(self._columns, cells)

    def _check(self, columns: dict[Column, int], cells: list[str]) -> Row:
        domain = cells[columns["domain"]] if "domain" in columns else DEFAULT_DOMAIN
        row = Row(domain, _to_time(cells[columns["time"]]), _to_power(cells[columns["watts"]]))
        if domain not in self._last_s:
            self._admit(domain)
        elif row.time_s <= self._last_s[domain]:
            back_s = self._last_s[domain] - row.time_s
            how = f"runs backwards by {back_s:.6g} s" if back_s else "stands still"
            raise ValueError(f"the time of {domain} {how}")
        self._last_s[domain] = row.time_s
        return row

    def _admit(self, domain: str) -> None:
        if not domain or len(domain) > MAX_NAME_CHARS or not domain.isprintable():
            raise ValueError(f"{_show(domain)} is not the name of a domain")
        if self._is_closed:
            raise ValueError(f"the domain {domain} was not in the log when it was opened")
        if len(self._last_s) >= MAX_DOMAINS:
            raise ValueError(f"the log has more than {MAX_DOMAINS} domains")


def _find_columns(cells: list[str]) -> dict[Column, int]:
    names = [cell.lower() for cell in cells]
    columns: dict[Column, int] = {}
    for column, accepted in _COLUMNS.items():
        places = [i for i, name in enumerate(names) if name in accepted]
        if len(places) > 1:
            raise ValueError(f"two columns for {column}: {cells[places[0]]} and {cells[places[1]]}")
        if places:
            columns[column] = places[0]
        elif column != "domain":
            raise ValueError(f"the header has no column {column} (accepted: {', '.join(accepted)})")
    return columns


def _to_power(text: str) -> float:
    power_w = _to_number(text)
    if power_w is None:
        raise ValueError(f"the power {_show(text)} is not a number")
    if not math.isfinite(power_w) or power_w < 0:
        raise ValueError(f"the power {_show(text)} is not a finite number of watts from 0 up")
    return power_w


def _to_time(text: str) -> float:
    time_s = _to_number(text)
    if time_s is None:
        time_s = _from_iso(text)
    if not math.isfinite(time_s):
        raise ValueError(f"the time {_show(text)} is not finite")
    if abs(time_s) > MAX_TIME_S:
        raise ValueError(f"the time {_show(text)} is too large for seconds since 1970: is it in milliseconds?")
    return time_s


def _to_number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _from_iso(text: str) -> float:
    # Python 3.10 takes neither Z, nor +0100, nor any number of decimals.
    full = re.sub(r"[zZ]$", "+00:00", text)
    full = _SHORT_OFFSET.sub(r"\1:\2", full) if ":" in full else full
    full = _FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), full)
    try:
        # A time without an offset is local time: so says `timestamp`, and so do most loggers.
        return datetime.fromisoformat(full).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"the time {_show(text)} is neither seconds since 1970 nor ISO 8601") from error


def _show(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
