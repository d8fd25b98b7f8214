"""The rows of a power meter's log: one line of CSV in, checked numbers out.

Nothing is guessed: a line that does not say when, how many watts and of what raises `ValueError`
with one sentence, to which the caller adds the file and the line.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Column = Literal["time", "watts", "domain"]

DEFAULT_DOMAIN = "wall"
# A rack's meter has a few dozen outlets; a log with more names has something else in that column.
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
        """From now on a domain that has not been seen is an error."""
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
            raise ValueError(f"{_show(domain)} is no name of a domain")
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
