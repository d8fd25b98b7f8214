"""Energy and time of a program's calls, and of its other parts, in one column.

The calls and the parts of a column sum to the program: what is left of it is its unexplained part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joulediff.model.apis.api_run import ApiAccount, ApiRun, add_accounts
from joulediff.model.apis.parts import BETWEEN, CHILDREN, MEASURING, UNEXPLAINED, gross_parts, rest_of
from joulediff.model.energy import Energy, remainder
from joulediff.model.units import format_share
from joulediff.report.views.columns import Emphasis
from joulediff.report.views.run.ledger import Scale
from joulediff.report.views.short_texts import format_places, pick_unit, round_to_sum

IDLE = "idle"
PROGRAM = "whole program"
_SHOWN = (BETWEEN, IDLE, CHILDREN, MEASURING)
NONE = "-"
# A larger half width says only that the energy is unknown.
_WIDEST_SHARE = 9.99


@dataclass(frozen=True, slots=True)
class Costs:
    """The energy of each API or line, of the other parts that the column has, and of the whole program."""

    items: Sequence[Energy | None]
    parts: Mapping[Any, Energy | None]
    whole: Energy | None

    @property
    def is_known(self) -> bool:
        """Whether any energy is known."""
        return self.whole is not None and any(each is not None for each in self.items)


def ledger_costs(account: ApiAccount) -> Costs:
    """Return the calls of an account above idle, and idle as a part."""
    return Costs([account.calls], part_energies(account), account.metered)


def net_costs(items: Sequence[Energy | None], account: ApiAccount) -> Costs:
    """Return energy above idle of items that are all the calls."""
    parts = {name: energy for name, energy in part_energies(account).items() if name != IDLE}
    known = account.metered is not None and account.idle is not None
    return Costs(items, parts, remainder(account.metered, [account.idle]) if known else None)


def gross_costs(items: Sequence[Energy | None], account: ApiAccount, *, between: bool = True) -> Costs:
    """Return energy with the idle power meanwhile. Without `between` the code between calls is among the items."""
    parts = {name: energy for name, energy in gross_parts(account, items).items() if between or name != BETWEEN}
    return Costs(items, parts, account.metered)


def part_energies(account: ApiAccount) -> dict[str, Energy | None]:
    """Return the parts of an account beside calls; those that no program has by default only if they are known."""
    found = {BETWEEN: account.between, IDLE: account.idle, CHILDREN: account.children, MEASURING: account.measuring}
    return {name: energy for name, energy in found.items() if energy is not None or name == BETWEEN}


def total_account(run: ApiRun) -> ApiAccount:
    """Return the sum of the counted domains, or all unknown."""
    return add_accounts(run.ledger) or ApiAccount(None, None, None, None, None, None, None)


def choose_scale(*wholes: Energy | None) -> Scale:
    """Return the unit of a table with these totals, with a digit more than usual: most APIs take little."""
    known = [abs(each.joules) for each in wholes if each is not None]
    factor, unit, places = pick_unit(max(known, default=0.0), "J")
    return Scale(factor, unit, places + 1)


def cost_cells(costs: Costs, scale: Scale, names: Sequence[str]) -> list[str]:
    """Return the cells of the items, of the parts `names`, and of the whole; they sum as printed.

    An item that is less than half a unit of the last place shows that it is not 0.
    """
    units = cost_units(costs, scale, names)
    items = [amount_cell(each, energy, scale) for each, energy in zip(units, costs.items, strict=False)]
    cells = [*items, *(format_places(each, scale.places) for each in units[len(items) :])]
    return _without_missing(cells, costs, names, NONE)


def amount_cell(units: int | None, energy: Energy | None, scale: Scale) -> str:
    """Return a number of units of the last place; one that is less than half of one is `<0.1`, not 0."""
    if units == 0 and energy is not None and energy.joules > 0:
        return f"<{format_places(1, scale.places)}"
    return format_places(units, scale.places)


def cost_units(costs: Costs, scale: Scale, names: Sequence[str]) -> list[int | None]:
    """Return items, parts `names` and the whole in units of the last place."""
    parts = [_left(costs) if name == UNEXPLAINED else costs.parts.get(name) for name in names]
    whole = scale.units_of(costs.whole)
    total = None if whole is None or not math.isfinite(whole) else round(whole)
    units = round_to_sum([scale.units_of(each) for each in (*costs.items, *parts)], total=total)
    return [*units, total]


def part_names(columns: Sequence[Costs], scale: Scale) -> list[str]:
    """Return the parts that are shown: those a column has, and the unexplained one if it is not zero."""
    names = [name for name in _SHOWN if any(name in column.parts for column in columns)]
    lefts = [scale.units_of(_left(column)) for column in columns]
    return [*names, *([UNEXPLAINED] if any(left is not None and round(left) for left in lefts) else [])]


def emphases(items: int, minor: int) -> tuple[Emphasis, ...]:
    """Return how rows stand out: items, less important ones after them, and the whole."""
    return (*repeat_emphasis("", items), *repeat_emphasis("minor", minor), "total")


def repeat_emphasis(emphasis: Emphasis, rows: int) -> tuple[Emphasis, ...]:
    """Return the same emphasis for some rows."""
    return (emphasis,) * rows


def spread_text(energy: Energy | None) -> str:
    """Return the half width of an energy as a share of it."""
    if energy is None:
        return ""
    if energy.is_zero:
        return NONE
    share = energy.half_width_share
    return format_share(share) if share <= _WIDEST_SHARE or not math.isfinite(share) else ">999%"


def share_cells(costs: Costs, scale: Scale, names: Sequence[str]) -> list[str]:
    """Return the shares of items and parts in the whole; they sum as printed."""
    *parts, whole = cost_units(costs, scale, names)
    if not whole or whole < 0:
        return ["?%"] * (len(parts) + 1)
    tenths = round_to_sum([None if each is None else 1000 * each / whole for each in parts], total=1000)
    return _without_missing([share_text(each) for each in (*tenths, 1000)], costs, names, "")


def share_text(tenths: int | None) -> str:
    """Return a number of tenths of a percent as text."""
    return f"{format_places(tenths, 1)}%"


def _without_missing(cells: list[str], costs: Costs, names: Sequence[str], missing: str) -> list[str]:
    """Return cells in which `missing` stands for the parts that the column does not have."""
    for at, name in enumerate(names, start=len(costs.items)):
        if name != UNEXPLAINED and name not in costs.parts:
            cells[at] = missing
    return cells


def _left(costs: Costs) -> Energy | None:
    """Return the part of the whole that is neither an item nor a part."""
    return rest_of(costs.whole, [*costs.items, *costs.parts.values()])
