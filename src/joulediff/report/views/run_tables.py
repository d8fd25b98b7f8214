"""The rows of a run as a table: by energy, with the rest of what was metered under them, or by time alone.

Columns are in one unit and sum to their total as printed, so that a reader can add them up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from joulediff.energy.ledger import Account, Books
from joulediff.model.energy import Energy
from joulediff.model.units import format_share
from joulediff.report.columns import GAP, fit_texts, format_places, make_table, pick_unit, round_to_sum
from joulediff.report.views.grouping import By, Row, total_row
from joulediff.report.views.ledger import Scale, add_accounts, choose_scale, round_accounts

# Columns of numbers go before names and places have less room than this.
_LEAST_TEXT = 32
# The last two stay on any terminal.
_LEAST_IMPORTANT = ("kernels", "source", "calls", "W", "time", "±")
# What most kernels of PyTorch begin with says nothing, and pushes what tells them apart out of sight.
_NOISE = re.compile(r"^void |\b(?:at|c10|native|std|cuda)::|\(anonymous namespace\)::|<unnamed>::")
_NAMES: dict[By, tuple[str, str]] = {
    "op": ("operator", "where"),
    "module": ("module", "type"),
    "line": ("line", "code"),
    "kernel": ("kernel", "launched by"),
}
# An interval as wide as this says no more than that nothing is known.
_WIDEST_SHARE = 9.99
_NOTHING = "-"
_LEFT = "unexplained"


@dataclass(frozen=True, slots=True)
class _Column:
    key: str
    head: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(len, (self.head, *self.cells))) + GAP


@dataclass(frozen=True, slots=True)
class _Line:
    """What else was metered: a part of the books, in units of the last place."""

    name: str
    units: int | None
    energy: Energy | None


def has_energies(rows: Sequence[Row], books: Books) -> bool:
    """Return whether rows can be held against a meter."""
    return any(row.energy is not None for row in rows) and add_accounts(books.accounts) is not None


def energy_table(rows: Sequence[Row], books: Books, width: int, *, by: By, on_cpu: bool, metered: Energy) -> Table:
    """Return rows, idle and what else was metered in at most `width` cells; they sum to the meter.

    `metered` is the energy of a step with its interval.
    """
    accounts = [account for account in books.accounts if account.counted]
    scale, whole = choose_scale(books.accounts), total_row(rows, books)
    lines = _lines(accounts, books)
    in_rows = (lines[-1].units or 0) - sum(line.units or 0 for line in lines[:-1])
    units = round_to_sum([_joules(row.energy, scale.per_joule) for row in rows], total=in_rows)
    joules = [_no_work(row, format_places(each, scale.places)) for row, each in zip(rows, units, strict=True)]
    blank = [""] * (len(lines) - 1)
    seconds = _time_column(rows)
    columns = [
        _Column("joules", scale.unit, [*joules, *(format_places(line.units, scale.places) for line in lines)]),
        _Column("share", "share", _energy_shares(rows, lines, scale.per_joule)),
        _Column(
            "±",
            "±",
            [*(_no_work(row, _spread(row.energy)) for row in rows), *map(_line_spread, lines[:-1]), _spread(metered)],
        ),
        _Column("W", "W", [*_watts(rows), *blank, ""]),
        _Column("time", seconds.head, [*seconds.cells[:-1], *blank, seconds.cells[-1]]),
        *_counts(rows, whole, by=by, on_cpu=on_cpu, blank=blank),
        _Column("source", "source", [*(row.source for row in rows), *map(_line_source, lines[:-1]), ""]),
    ]
    names = [*(_name(row, by) for row in rows), *(line.name for line in lines[:-1]), metered.source]
    where = [*(row.where for row in rows), *(_line_where(line, scale) for line in lines)]
    uniform = len({row.source for row in rows if row.energy is not None}) == 1
    return _fill(_drop(columns, names, where, width, uniform=uniform), names, where, width, by)


def time_table(rows: Sequence[Row], width: int, *, by: By, traced: bool, on_cpu: bool) -> Table:
    """Return rows and their total in at most `width` cells, texts cut where they must be.

    What ran `on_cpu` has no kernels besides its operators, so these are not counted.
    """
    whole, seconds = total_row(rows, Books()), _time_column(rows)
    counts = _counts(rows, whole, by=by, on_cpu=on_cpu, blank=[])
    if not traced:
        counts = [_Column(c.key, c.head, ["?"] * len(c.cells)) if c.key == "kernels" else c for c in counts]
    shares = round_to_sum([_times(row.kernel_s, 1000 / whole.kernel_s) if whole.kernel_s else None for row in rows])
    columns = [seconds, _Column("share", "share", _percent(shares)), *counts]
    names, where = [*(_name(row, by) for row in rows), whole.name], [*(row.where for row in rows), ""]
    return _fill(columns, names, where, width, by)


def short_kernel(name: str) -> str:
    """Return a kernel's name without what most of them begin with."""
    return _NOISE.sub("", name)


def _lines(accounts: Sequence[Account], books: Books) -> list[_Line]:
    """Return what else was metered, and at last the sum."""
    cells = round_accounts(accounts, choose_scale(books.accounts))
    total = add_accounts(accounts)
    assert total is not None
    known = {
        part: [each for row in cells if isinstance(each := row[part], int)]
        for part in ("metered", "operators", "idle", "host", "waits", _LEFT)
    }
    parts: Mapping[str, Energy | None] = {
        "idle": total.idle, "host": total.host, "waits": total.waits, _LEFT: total.unexplained
    }  # fmt: skip
    found = [
        _Line(name, sum(known[name]), energy)
        for name, energy in parts.items()
        if name == _LEFT or any(known[name]) or (name == "idle" and known[name])
    ]
    spent = sum(known["operators"]) + sum(line.units or 0 for line in found)
    if any(account.unexplained is None for account in accounts):
        found.append(_Line("not split", sum(known["metered"]) - spent, None))
    return [*found, _Line("metered", sum(known["metered"]), total.metered)]


def _energy_shares(rows: Sequence[Row], lines: Sequence[_Line], per_joule: float) -> list[str]:
    whole = lines[-1].units
    if not whole or whole < 0:
        return ["?%"] * (len(rows) + len(lines))
    units = [_joules(row.energy, per_joule) for row in rows] + [line.units for line in lines[:-1]]
    tenths = round_to_sum([_times(each, 1000 / whole) for each in units], total=1000)
    cells = [f"{format_places(each, 1)}%" for each in tenths]
    return [*(_no_work(row, cell) for row, cell in zip(rows, cells, strict=False)), *cells[len(rows) :], "100.0%"]


def _counts(rows: Sequence[Row], whole: Row, *, by: By, on_cpu: bool, blank: Sequence[str]) -> list[_Column]:
    calls = _Column("calls", "calls", [*(_count(row.calls) for row in rows), *blank, _count(whole.calls)])
    numbers = [*(_count(len(row.kernels)) for row in rows), *blank, _count(len(whole.kernels))]
    if by == "kernel":  # one operator launches kernels of several names: it would count twice
        return [_Column("calls", "kernels", numbers)]
    return [calls] if on_cpu else [calls, _Column("kernels", "kernels", numbers)]


def _drop(
    columns: Sequence[_Column], names: Sequence[str], where: Sequence[str], width: int, *, uniform: bool
) -> list[_Column]:
    """Return the columns that leave room for words. A source that all rows share goes early: the report tells it."""
    need = max(map(cell_len, names), default=0) + GAP + max(map(cell_len, where), default=0)
    order = list(_LEAST_IMPORTANT)
    if not uniform:
        order.remove("source")
        order.insert(order.index("calls") + 1, "source")
    left = list(columns)
    for key in order:
        if width - sum(column.width for column in left) >= min(need, _LEAST_TEXT):
            break
        left = [column for column in left if column.key != key]
    return left


def _fill(columns: Sequence[_Column], names: Sequence[str], where: Sequence[str], width: int, by: By) -> Table:
    used = sum(column.width for column in columns)
    names, where = fit_texts(names, where, width - used, keep_end=by == "op")
    heads = [column.head if column.key == "source" else f">{column.head}" for column in columns]
    table = make_table(*heads, *_NAMES[by])
    for *numbers, name, place in zip(*(column.cells for column in columns), names, where, strict=True):
        style = "bold" if len(table.rows) == len(names) - 1 else None
        table.add_row(*numbers, Text(name), Text(place, style="dim"), style=style)
    return table


def _time_column(rows: Sequence[Row]) -> _Column:
    known = [row.kernel_s for row in rows if row.kernel_s is not None]
    factor, unit, places = pick_unit(sum(known), "s")
    whole = round_to_sum([_times(row.kernel_s, 10**places / factor) for row in rows])
    sums = [each for each in whole if each is not None]
    return _Column("time", unit, [format_places(each, places) for each in (*whole, sum(sums) if sums else None)])


def _percent(tenths: Sequence[int | None]) -> list[str]:
    known = [each for each in tenths if each is not None]
    return [f"{format_places(each, 1)}%" for each in (*tenths, sum(known) if known else None)]


def _watts(rows: Sequence[Row]) -> list[str]:
    most = max((abs(row.power_w) for row in rows if row.power_w is not None), default=0.0)
    places = 0 if most >= 100.0 else 1
    return [_no_work(row, "?" if row.power_w is None else _watt(row.power_w, places)) for row in rows]


def _watt(power_w: float, places: int) -> str:
    return f"{power_w:,.{places}f}" if abs(power_w) < 1e6 else f"{power_w:.1e}"


def _spread(energy: Energy | None) -> str:
    if energy is None:
        return ""
    if energy.joules == 0.0:
        return _NOTHING
    share = energy.half_width_share
    return format_share(share) if share <= _WIDEST_SHARE or not math.isfinite(share) else ">999%"


def _line_source(line: _Line) -> str:
    return "" if line.energy is None or line.name == _LEFT else line.energy.source


def _line_spread(line: _Line) -> str:
    return "" if line.name == _LEFT else _spread(line.energy)


def _line_where(line: _Line, scale: Scale) -> str:
    """Return the interval of what is left, which as a share of next to nothing would tell nothing."""
    if line.name != _LEFT or line.energy is None or line.energy.low == line.energy.high:
        return ""
    half_j = max(line.energy.high - line.energy.joules, line.energy.joules - line.energy.low) * scale.per_joule
    return f"± {format_places(round(half_j), scale.places)} {scale.unit}" if math.isfinite(half_j) else ""


def _no_work(row: Row, text: str) -> str:
    """Return a dash for operators that no device worked on: nothing is unknown about them."""
    return _NOTHING if row.energy is None and row.kernel_s == 0.0 and not row.kernels else text


def _name(row: Row, by: By) -> str:
    return short_kernel(row.name) if by == "kernel" else row.name


def _joules(energy: Energy | None, per_joule: float) -> float | None:
    return None if energy is None else energy.joules * per_joule


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _count(number: int) -> str:
    return f"{number:,}" if number else _NOTHING
