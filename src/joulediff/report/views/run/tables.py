"""The rows of a run as a table: by energy, with the other parts of the metered energy, or by time.

Each column has one unit and sums to its total as printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from joulediff.energy.ledger import Books
from joulediff.model.energy import Energy
from joulediff.model.measurement import Account
from joulediff.model.units import format_share
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.run.ledger import Scale, add_accounts, choose_scale, round_accounts
from joulediff.report.views.run.rows import By, RunRow, total_row
from joulediff.report.views.short_texts import format_places, pick_unit, round_to_sum, short_kernel

# The order in which a narrow terminal leaves columns out. If all rows have the same source, that column goes early: a
# line under the table names it.
_SPARE = {key: at for at, key in enumerate(("kernels", "source", "calls", "sources", "W", "time", "±"))}
_NAMES: dict[By, tuple[str, str]] = {
    "op": ("operator", "where"),
    "module": ("module", "type"),
    "line": ("line", "code"),
    "kernel": ("kernel", "launched by"),
    "region": ("region", "operators"),
}
# A wider interval is shown as `>999%`.
_WIDEST_SHARE = 9.99
_NOTHING = "-"
_LEFT = "unexplained"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the metered energy outside operators, in units of the last place."""

    name: str
    units: int | None
    energy: Energy | None


def has_energies(rows: Sequence[RunRow], books: Books) -> bool:
    """Return whether rows have energies that can be compared with a meter."""
    return any(row.energy is not None for row in rows) and add_accounts(books.accounts) is not None


def energy_table(rows: Sequence[RunRow], books: Books, *, by: By, on_cpu: bool, metered: Energy) -> TextTable:
    """Return rows, then idle and the other parts of the metered energy; the last row is their sum.

    `metered` is the energy of a step with its interval.
    """
    accounts = [account for account in books.accounts if account.counted]
    scale, whole = choose_scale(books.accounts), total_row(rows, books)
    parts = _parts(accounts, books)
    in_rows = (parts[-1].units or 0) - sum(part.units or 0 for part in parts[:-1])
    units = round_to_sum([scale.units_of(row.energy) for row in rows], total=in_rows)
    joules = [_no_work(row, format_places(each, scale.places)) for row, each in zip(rows, units, strict=True)]
    blank = [""] * (len(parts) - 1)
    seconds = _time_column(rows)
    spreads = [_no_work(row, _spread(row.energy)) for row in rows]
    is_uniform = len({row.source for row in rows if row.energy is not None}) == 1
    columns = [
        _number(scale.unit, [*joules, *(format_places(part.units, scale.places) for part in parts)]),
        _number("share", _energy_shares(rows, parts, scale)),
        _number("±", [*spreads, *map(_part_spread, parts[:-1]), _spread(metered)]),
        _number("W", [*_watts(rows), *blank, ""]),
        replace(seconds, cells=[*seconds.cells[:-1], *blank, seconds.cells[-1]]),
        *_counts(rows, whole, by=by, on_cpu=on_cpu, blank=blank),
        Column(
            "source",
            [*(row.source for row in rows), *map(_part_source, parts[:-1]), ""],
            spare=_SPARE["source" if is_uniform else "sources"],
        ),
    ]
    names = [*(_name(row, by) for row in rows), *(part.name for part in parts[:-1]), metered.source]
    where = [*(row.where for row in rows), *(_part_where(part, scale) for part in parts)]
    return _with_names(columns, names, where, by)


def time_table(rows: Sequence[RunRow], *, by: By, traced: bool, on_cpu: bool) -> TextTable:
    """Return rows and their total. With `on_cpu` kernels are not counted: there is one for each operator."""
    whole, seconds = total_row(rows, Books()), _time_column(rows)
    counts = _counts(rows, whole, by=by, on_cpu=on_cpu, blank=[])
    if not traced:
        counts = [replace(c, cells=["?"] * len(c.cells)) if c.head == "kernels" else c for c in counts]
    shares = round_to_sum([_times(row.kernel_s, 1000 / whole.kernel_s) if whole.kernel_s else None for row in rows])
    # The time column is never dropped.
    columns = [replace(seconds, spare=None), _number("share", _percent(shares)), *counts]
    return _with_names(columns, [*(_name(row, by) for row in rows), whole.name], [*(row.where for row in rows), ""], by)


def _parts(accounts: Sequence[Account], books: Books) -> list[_Part]:
    """Return the parts of the metered energy outside operators, and as the last one the sum."""
    cells = round_accounts(accounts, choose_scale(books.accounts))
    total = add_accounts(accounts)
    assert total is not None
    known = {
        part: [each for row in cells if isinstance(each := row[part], int)]
        for part in ("metered", "operators", "idle", "host", "waits", _LEFT)
    }
    energies: Mapping[str, Energy | None] = {
        "idle": total.idle, "host": total.host, "waits": total.waits, _LEFT: total.unexplained
    }  # fmt: skip
    found = [
        _Part(name, sum(known[name]), energy)
        for name, energy in energies.items()
        if name == _LEFT or any(known[name]) or (name == "idle" and known[name])
    ]
    spent = sum(known["operators"]) + sum(part.units or 0 for part in found)
    if any(account.unexplained is None for account in accounts):
        found.append(_Part("not split", sum(known["metered"]) - spent, None))
    return [*found, _Part("metered", sum(known["metered"]), total.metered)]


def _energy_shares(rows: Sequence[RunRow], parts: Sequence[_Part], scale: Scale) -> list[str]:
    whole = parts[-1].units
    if not whole or whole < 0:
        return ["?%"] * (len(rows) + len(parts))
    units = [scale.units_of(row.energy) for row in rows] + [part.units for part in parts[:-1]]
    tenths = round_to_sum([_times(each, 1000 / whole) for each in units], total=1000)
    cells = [f"{format_places(each, 1)}%" for each in tenths]
    return [*(_no_work(row, cell) for row, cell in zip(rows, cells, strict=False)), *cells[len(rows) :], "100.0%"]


def _counts(rows: Sequence[RunRow], whole: RunRow, *, by: By, on_cpu: bool, blank: Sequence[str]) -> list[Column]:
    calls = _number("calls", [*(_count(row.calls) for row in rows), *blank, _count(whole.calls)])
    kernels = _number("kernels", [*(_count(len(row.kernels)) for row in rows), *blank, _count(len(whole.kernels))])
    if by == "kernel":  # one operator launches kernels of several names: it would count twice
        return [replace(kernels, spare=_SPARE["calls"])]
    return [calls] if on_cpu else [calls, kernels]


def _number(head: str, cells: Sequence[str]) -> Column:
    return Column(head, cells, is_right=True, spare=_SPARE.get(head))


def _with_names(columns: Sequence[Column], names: Sequence[str], where: Sequence[str], by: By) -> TextTable:
    name_head, where_head = _NAMES[by]
    name = Column(name_head, names, cut="end")
    place = Column(where_head, where, cut="begin" if by == "op" else "end", is_minor=True)
    emphasis: list[Emphasis] = [""] * len(names)
    emphasis[-1] = "total"
    return TextTable((*columns, name, place), tuple(emphasis))


def _time_column(rows: Sequence[RunRow]) -> Column:
    known = [row.kernel_s for row in rows if row.kernel_s is not None]
    factor, unit, places = pick_unit(sum(known), "s")
    whole = round_to_sum([_times(row.kernel_s, 10**places / factor) for row in rows])
    sums = [each for each in whole if each is not None]
    cells = [format_places(each, places) for each in (*whole, sum(sums) if sums else None)]
    return Column(unit, cells, is_right=True, spare=_SPARE["time"])


def _percent(tenths: Sequence[int | None]) -> list[str]:
    known = [each for each in tenths if each is not None]
    return [f"{format_places(each, 1)}%" for each in (*tenths, sum(known) if known else None)]


def _watts(rows: Sequence[RunRow]) -> list[str]:
    most = max((abs(row.power_w) for row in rows if row.power_w is not None), default=0.0)
    places = 0 if most >= 100.0 else 1
    return [_no_work(row, "?" if row.power_w is None else _watt(row.power_w, places)) for row in rows]


def _watt(power_w: float, places: int) -> str:
    return f"{power_w:,.{places}f}" if abs(power_w) < 1e6 else f"{power_w:.1e}"


def _spread(energy: Energy | None) -> str:
    if energy is None:
        return ""
    if energy.is_zero:
        return _NOTHING
    share = energy.half_width_share
    return format_share(share) if share <= _WIDEST_SHARE or not math.isfinite(share) else ">999%"


def _part_source(part: _Part) -> str:
    return "" if part.energy is None or part.name == _LEFT else part.energy.source


def _part_spread(part: _Part) -> str:
    return "" if part.name == _LEFT else _spread(part.energy)


def _part_where(part: _Part, scale: Scale) -> str:
    """Return the interval of the unexplained part in joules: as a share of nearly zero it would say nothing."""
    if part.name != _LEFT or part.energy is None or part.energy.width_j == 0.0:
        return ""
    half_j = part.energy.half_j * scale.per_joule
    return f"± {format_places(round(half_j), scale.places)} {scale.unit}" if math.isfinite(half_j) else ""


def _no_work(row: RunRow, text: str) -> str:
    """Return a dash for operators without device work: their energy is not unknown, they have none."""
    return _NOTHING if row.energy is None and row.kernel_s == 0.0 and not row.kernels else text


def _name(row: RunRow, by: By) -> str:
    return short_kernel(row.name) if by == "kernel" else row.name


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _count(number: int) -> str:
    return f"{number:,}" if number else _NOTHING
