"""The ledger of a run as a table: the energy that each meter counted in a step, and its parts.

Numbers are rounded once, to whole units of the last place shown. So the parts sum to the metered energy as printed,
here and in the table of operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulediff.energy.device_time import is_gpu
from joulediff.model.energy import Energy, add
from joulediff.model.measurement import Account
from joulediff.model.units import format_share
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.short_texts import format_places, pick_unit, round_to_sum

PARTS = ("operators", "idle", "host", "waits", "unexplained")
_NUMBERS = ("metered", "±", *PARTS)
_SPARE = {head: at for at, head in enumerate(("±", "waits", "host", "source", "idle"))}
# A GPU's energy has no such parts.
_HOST_PARTS = ("host", "waits")
# A number in units of the last place, `_NONE` for a part that the domain does not have, None if unknown.
_Cell = int | str | None
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of the joules in a table."""

    factor: float
    unit: str
    places: int

    @property
    def per_joule(self) -> float:
        """Return the number of units of the last place in one joule."""
        return float(10**self.places / self.factor)

    def units_of(self, energy: Energy | None) -> float | None:
        """Return an energy in units of the last place, not rounded; None if unknown."""
        return None if energy is None else energy.joules * self.per_joule


def add_accounts(accounts: Sequence[Account]) -> Account | None:
    """Return the sum of the accounts in the total; None if there is none, or no finite number.

    A part is None if it is unknown in one of the domains that have it.
    """
    counted = [account for account in accounts if account.counted]
    metered = add((account.domain, account.metered) for account in counted)
    if metered is None:
        return None
    operators, idle, host, waits, unexplained = (_add_part(counted, part) for part in PARTS)
    return Account("total", metered, operators, idle, host, waits, unexplained, counted=True)


def choose_scale(accounts: Sequence[Account]) -> Scale:
    """Return the unit for the total, or for the largest domain if none is in the total."""
    total = add_accounts(accounts)
    known = [a.metered.joules for a in accounts if math.isfinite(a.metered.joules)]
    return Scale(*pick_unit(total.metered.joules if total is not None else max(known, default=0.0), "J"))


def round_accounts(accounts: Sequence[Account], scale: Scale) -> list[Mapping[str, _Cell]]:
    """Return `metered` and the parts of each account in units of the last place, rounded so that the parts sum."""
    metered = round_to_sum([scale.units_of(account.metered) for account in accounts])
    return [_round_account(account, units, scale) for account, units in zip(accounts, metered, strict=True)]


def ledger_table(accounts: Sequence[Account]) -> TextTable:
    """Return a row for each domain, with the total under the domains that it sums; at least one account."""
    scale = choose_scale(accounts)
    counted = [account for account in accounts if account.counted]
    others = [account for account in accounts if not account.counted]
    rows, other_rows = round_accounts(counted, scale), round_accounts(others, scale)
    lines = [_line(account, row, scale) for account, row in zip(counted, rows, strict=True)]
    emphasis: list[Emphasis] = [""] * len(counted)
    if len(counted) > 1:
        total = {name: _add_cells([row[name] for row in rows]) for name in ("metered", *PARTS)}
        lines.append(["total", *_words(total, scale, ""), ""])
        emphasis.append("total")
    lines += [_line(account, row, scale) for account, row in zip(others, other_rows, strict=True)]
    emphasis += ["minor"] * len(others)
    unused = {part for part in _HOST_PARTS if all(row[part] in (_NONE, 0, None) for row in (*rows, *other_rows))}
    domains, *numbers, sources = zip(*lines, strict=True)
    heads = (_head(accounts), *_NUMBERS[1:])
    columns = [
        Column(head, cells, is_right=True, spare=_SPARE.get(head))
        for head, cells in zip(heads, numbers, strict=True)
        if head not in unused
    ]
    domain = Column(f"{scale.unit} a step", domains, short_head=scale.unit)
    source = Column("source", sources, spare=_SPARE["source"], wraps=True)
    return TextTable((domain, *columns, source), tuple(emphasis))


def _head(accounts: Sequence[Account]) -> str:
    """Return the head of the column of the energy: an estimate is not metered."""
    sources = {account.metered.source for account in accounts}
    return sources.pop() if len(sources) == 1 else "energy"


def _line(account: Account, row: Mapping[str, _Cell], scale: Scale) -> list[str]:
    spread = format_share(account.metered.half_width_share)
    source = account.metered.source + ("" if account.counted else ", not added")
    return [account.domain, *_words(row, scale, spread), source]


def _words(row: Mapping[str, _Cell], scale: Scale, spread: str) -> list[str]:
    cells = {name: cell if isinstance(cell, str) else format_places(cell, scale.places) for name, cell in row.items()}
    return [cells["metered"], spread, *(cells[part] for part in PARTS)]


def _round_account(account: Account, metered: int | None, scale: Scale) -> dict[str, _Cell]:
    energies: dict[str, Energy | None] = {part: getattr(account, part) for part in PARTS}
    # If `unexplained` is unknown, the known parts do not sum to the metered energy.
    closes = account.unexplained is not None and metered is not None
    exact = [scale.units_of(energy) for energy in energies.values()]
    units: list[int | None] = round_to_sum(exact, total=metered if closes else None)
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
