"""The tables of a run: its books, and where the device's time went.

Columns are in one unit and sum to their total as printed, so that a reader can add them up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from joulediff.report.columns import GAP, fit_texts, format_places, make_table, pick_unit, round_to_sum
from joulediff.report.grouping import By, Row, total_row
from joulediff.report.ledger import Account
from joulediff.units import format_share

# A cell of the ledger: a number of its last place, `_NONE` where nothing is looked for, None where it is not known.
_Cell = int | str | None
_NONE = "-"
# What most kernels of PyTorch begin with says nothing, and pushes what tells them apart out of sight.
_NOISE = re.compile(r"^void |\b(?:at|c10|native|std|cuda)::|\(anonymous namespace\)::|<unnamed>::")
_NAMES: dict[By, tuple[str, str]] = {
    "op": ("operator", "where"),
    "module": ("module", "type"),
    "line": ("line", "code"),
    "kernel": ("kernel", "launched by"),
}


def ledger_table(accounts: Sequence[Account]) -> Table:
    """Return the books of a run; at least one account."""
    # Those that count first, so that the total stands under what it sums.
    shown = sorted(accounts, key=lambda account: not account.counted)
    factor, unit, places = pick_unit(max(account.metered.joules for account in shown), "J")
    table = make_table(f"{unit} a step", ">energy", ">±", ">idle", ">operators, not split yet", "source")
    for column in table.columns[-2:]:
        column.no_wrap = False  # a narrow terminal breaks these words before it cuts numbers
    counted = sum(account.counted for account in shown)
    rows = _in_last_places(shown[:counted], 10**places / factor)
    for account, row in zip(shown, rows + _in_last_places(shown[counted:], 10**places / factor), strict=True):
        metered, idle, rest = _ledger_words(row, places)
        spread = format_share(account.metered.half_width_share)
        source = account.metered.source + ("" if account.counted else ", not added")
        # As Text: a table takes a plain string for markup.
        cells = [Text(cell) for cell in (account.domain, metered, spread, idle, rest, source)]
        table.add_row(*cells, style=None if account.counted else "dim")
        if counted > 1 and account is shown[counted - 1]:
            metered, idle, rest = _ledger_words([_add(column) for column in zip(*rows, strict=True)], places)
            table.add_row("total", metered, "", idle, rest, "", style="bold")
    return table


def row_table(rows: Sequence[Row], width: int, *, by: By, traced: bool, on_cpu: bool) -> Table:
    """Return rows and their total in at most `width` cells, texts cut where they must be.

    What ran `on_cpu` has no kernels besides its operators, so these are not counted.
    """
    whole = total_row(rows)
    factor, unit, places = pick_unit(whole.kernel_s or 0.0, "s")
    columns = {
        unit: _column([_times(row.kernel_s, 10**places / factor) for row in rows], places),
        "share": [f"{each}%" for each in _column([_share(row, whole) for row in rows], 1)],
        "calls": [_count(row.calls) for row in (*rows, whole)],
        "kernels": [_count(row.kernels) if traced else "?" for row in (*rows, whole)],
    }
    if by == "kernel":
        del columns["calls"]  # one operator launches kernels of several names: it would count twice
    elif on_cpu:
        del columns["kernels"]
    used = sum(max(map(len, (head, *cells))) + GAP for head, cells in columns.items())
    names = [short_kernel(row.name) if by == "kernel" else row.name for row in (*rows, whole)]
    names, where = fit_texts(names, [row.where for row in (*rows, whole)], width - used, keep_end=by == "op")
    table = make_table(*(f">{head}" for head in columns), *_NAMES[by])
    for *numbers, name, place in zip(*columns.values(), names, where, strict=True):
        style = "bold" if len(table.rows) == len(rows) else None
        table.add_row(*numbers, Text(name), Text(place, style="dim"), style=style)
    return table


def short_kernel(name: str) -> str:
    """Return a kernel's name without what most of them begin with."""
    return _NOISE.sub("", name)


def _in_last_places(accounts: Sequence[Account], per_joule: float) -> list[list[_Cell]]:
    """Return metered, idle and rest of each in whole units of the last place shown: they sum there too."""
    found: list[list[_Cell]] = []
    for account, metered in zip(accounts, round_to_sum([a.metered.joules * per_joule for a in accounts]), strict=True):
        idle = None if account.idle is None else round(account.idle.joules * per_joule)
        if not account.splits:
            found.append([metered, _NONE, metered])
        elif idle is None or metered is None:
            found.append([metered, None, None])
        else:
            found.append([metered, idle, metered - idle])
    return found


def _add(column: Sequence[_Cell]) -> _Cell:
    if None in column:
        return None
    numbers = [cell for cell in column if isinstance(cell, int)]
    return sum(numbers) if numbers else _NONE


def _ledger_words(cells: Sequence[_Cell], places: int) -> list[str]:
    return [cell if isinstance(cell, str) else format_places(cell, places) for cell in cells]


def _column(units: Sequence[float | None], places: int) -> list[str]:
    """Return numbers, given in units of their last place, and at the end their sum."""
    whole = round_to_sum(units)
    known = [each for each in whole if each is not None]
    return [format_places(each, places) for each in (*whole, sum(known) if known else None)]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _share(row: Row, whole: Row) -> float | None:
    """Return the share in tenths of a percent."""
    return _times(row.kernel_s, 1000 / whole.kernel_s) if whole.kernel_s else None


def _count(number: int) -> str:
    return f"{number:,}" if number else "-"
