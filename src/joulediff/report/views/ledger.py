"""The books of a run as a table: what each meter counted in a step, and what it was spent on.

Numbers are rounded once, to whole units of the last place shown, so that parts sum to the meter as printed here and in
the table of operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from joulediff.energy.device_time import is_gpu
from joulediff.energy.ledger import Account
from joulediff.model.energy import Energy, add
from joulediff.model.units import format_share
from joulediff.report.columns import GAP, format_places, make_table, pick_unit, round_to_sum

PARTS = ("operators", "idle", "host", "waits", "unexplained")
_COLUMNS = ("metered", "±", *PARTS, "source")
_LEAST_IMPORTANT = ("±", "waits", "host", "source", "idle")
# The parts of a host alone: those of a GPU have no such thing.
_HOST_PARTS = ("host", "waits")
# A number in units of the last place, `_NONE` where nothing is looked for, None where it is not known.
_Cell = int | str | None
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of a table's joules."""

    factor: float
    unit: str
    places: int

    @property
    def per_joule(self) -> float:
        """Return how many units of the last place a joule is."""
        return float(10**self.places / self.factor)


def add_accounts(accounts: Sequence[Account]) -> Account | None:
    """Return the sum of the accounts that count; None where there is none, or no number.

    A part is None if one of the domains that have such a part does not know it.
    """
    counted = [account for account in accounts if account.counted]
    metered = add((account.domain, account.metered) for account in counted)
    if metered is None:
        return None
    operators, idle, host, waits, unexplained = (_add_part(counted, part) for part in PARTS)
    return Account("total", metered, operators, idle, host, waits, unexplained, counted=True, rested=False)


def choose_scale(accounts: Sequence[Account]) -> Scale:
    """Return the unit that shows the sum of what counts, or where nothing does, the largest domain."""
    total = add_accounts(accounts)
    known = [a.metered.joules for a in accounts if math.isfinite(a.metered.joules)]
    return Scale(*pick_unit(total.metered.joules if total is not None else max(known, default=0.0), "J"))


def round_accounts(accounts: Sequence[Account], scale: Scale) -> list[Mapping[str, _Cell]]:
    """Return `metered` and the parts of each account in units of the last place: they sum there too."""
    metered = round_to_sum([account.metered.joules * scale.per_joule for account in accounts])
    return [_round_account(account, units, scale) for account, units in zip(accounts, metered, strict=True)]


def ledger_table(accounts: Sequence[Account], width: int) -> Table:
    """Return the books of a run; at least one account."""
    scale = choose_scale(accounts)
    # Those that count first, so that the total stands under what it sums.
    counted = [account for account in accounts if account.counted]
    others = [account for account in accounts if not account.counted]
    rows = round_accounts(counted, scale)
    lines = [_line(account, row, scale) for account, row in zip(counted, rows, strict=True)]
    if len(counted) > 1:
        total = {name: _add_cells([row[name] for row in rows]) for name in ("metered", *PARTS)}
        lines.append(["total", *_words(total, scale, ""), ""])
    apart = round_accounts(others, scale)
    lines += [_line(account, row, scale) for account, row in zip(others, apart, strict=True)]
    unused = {part for part in _HOST_PARTS if all(row[part] in (_NONE, 0, None) for row in (*rows, *apart))}
    return _fill(lines, scale.unit, width, unused=unused, bold=len(counted) if len(counted) > 1 else None)


def _fill(lines: Sequence[Sequence[str]], unit: str, width: int, *, unused: set[str], bold: int | None) -> Table:
    heads = dict(zip(("domain", *_COLUMNS), (f"{unit} a step", *_COLUMNS), strict=True))
    widths = {key: max(len(line[at]) for line in lines) for at, key in enumerate(heads)}
    # A narrow terminal breaks the words of a source before it cuts numbers.
    widths["source"] = max(max(map(len, line[-1].split()), default=0) for line in lines)
    if _need(widths, heads, unused) > width - (max(len(line[-1]) for line in lines) - widths["source"]):
        heads["domain"] = unit
    dropped = set(unused)
    for key in _LEAST_IMPORTANT:
        if _need(widths, heads, dropped) > width:
            dropped.add(key)
    used = [(at, key) for at, key in enumerate(heads) if key not in dropped]
    table = make_table(*(heads[key] if key in ("domain", "source") else f">{heads[key]}" for _, key in used))
    table.columns[-1].no_wrap = used[-1][1] != "source"
    for number, line in enumerate(lines):
        style = "bold" if number == bold else "dim" if line[-1].endswith("not added") else None
        # As Text: a table takes a plain string for markup.
        table.add_row(*(Text(line[at]) for at, _ in used), style=style)
    return table


def _need(widths: Mapping[str, int], heads: Mapping[str, str], dropped: set[str]) -> int:
    return sum(max(widths[key], len(heads[key])) + GAP for key in heads if key not in dropped) - GAP


def _line(account: Account, row: Mapping[str, _Cell], scale: Scale) -> list[str]:
    spread = format_share(account.metered.half_width_share)
    source = account.metered.source + ("" if account.counted else ", not added")
    return [account.domain, *_words(row, scale, spread), source]


def _words(row: Mapping[str, _Cell], scale: Scale, spread: str) -> list[str]:
    cells = {name: cell if isinstance(cell, str) else format_places(cell, scale.places) for name, cell in row.items()}
    return [cells["metered"], spread, *(cells[part] for part in PARTS)]


def _round_account(account: Account, metered: int | None, scale: Scale) -> dict[str, _Cell]:
    energies: dict[str, Energy | None] = {part: getattr(account, part) for part in PARTS}
    joules = [None if energy is None else energy.joules * scale.per_joule for energy in energies.values()]
    # Without what is left, the parts that are known do not sum to the meter.
    closes = account.unexplained is not None and metered is not None
    units: list[int | None] = round_to_sum(joules, total=metered if closes else None)
    cells: dict[str, _Cell] = {"metered": metered, **dict(zip(PARTS, units, strict=True))}
    return cells | {part: _NONE for part in _HOST_PARTS if cells[part] is None and is_gpu(account.domain)}


def _add_cells(column: Sequence[_Cell]) -> _Cell:
    if None in column:
        return None
    numbers = [cell for cell in column if isinstance(cell, int)]
    return sum(numbers) if numbers else _NONE


def _add_part(accounts: Sequence[Account], part: str) -> Energy | None:
    having = [a for a in accounts if not (part in _HOST_PARTS and is_gpu(a.domain))]
    known: list[tuple[str, Energy]] = [(a.domain, energy) for a in having if (energy := getattr(a, part)) is not None]
    return add(known) if len(known) == len(having) else None
