"""Columns of numbers that a reader can add up: one unit for all, and rounded so that they sum as printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP = 2
DIGITS = 4
_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
# The heads alone need as much.
_LEAST_ROOM = 16


def pick_unit(most: float, unit: str) -> tuple[float, str, int]:
    """Return what to divide by, the unit then, and how many places after the point show `DIGITS` digits of `most`."""
    most = abs(most) if math.isfinite(most) else 0.0
    last = _PREFIXES[-1] if most else _PREFIXES[0]
    factor, prefix = next((p for p in _PREFIXES if most >= p[0]), last)
    return factor, prefix + unit, max(0, DIGITS - len(str(int(most / factor))))


def round_to_sum(values: Sequence[float | None], *, total: int | None = None) -> list[int | None]:
    """Return whole numbers that sum to `total`, or else to the rounded sum: those with the largest remainders round up.

    What is None or not finite is not known, and None.
    """
    known = {i: value for i, value in enumerate(values) if value is not None and math.isfinite(value)}
    whole = {i: math.floor(value) for i, value in known.items()}
    rests = {i: known[i] - whole[i] for i in known}
    if rests:
        left = round(sum(rests.values())) if total is None else total - sum(whole.values())
        every, more = divmod(left, len(rests))
        for place, i in enumerate(sorted(rests, key=lambda i: -rests[i])):
            whole[i] += every + (place < more)
    return [whole.get(i) for i in range(len(values))]


def format_places(units: int | None, places: int) -> str:
    """Return a number of units of the last place as text: 3123 is `3.123` with three places."""
    if units is None:
        return "?"
    whole, rest = divmod(abs(units), 10**places)
    return f"{'-' if units < 0 else ''}{whole:,}" + (f".{rest:0{places}d}" if places else "")


def fit_texts(names: Sequence[str], places: Sequence[str], room: int, *, keep_end: bool) -> tuple[list[str], list[str]]:
    """Return two columns that share `room`. Names are cut at their end; places too, or else at their begin."""
    room = max(room, _LEAST_ROOM) - GAP
    name_need, place_need = (max(map(cell_len, texts), default=0) for texts in (names, places))
    place_room = min(place_need, max(room - name_need, room // 2 if keep_end else room // 3))
    cut_place = cut_begin if keep_end else cut_end
    return [cut_end(name, room - place_room) for name in names], [cut_place(place, place_room) for place in places]


def cut_end(text: str, room: int) -> str:
    """Return a text in at most `room` cells."""
    shown = Text(text)
    shown.truncate(room, overflow="ellipsis")
    return shown.plain


def cut_begin(text: str, room: int) -> str:
    """Return the end of a text in at most `room` cells."""
    return text if cell_len(text) <= room else cut_end(text[::-1], room)[::-1]


def make_table(*heads: str) -> Table:
    """Return a table of columns; a `>` before a head sets it to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    for head in heads:
        table.add_column(head.removeprefix(">"), justify="right" if head.startswith(">") else "left", no_wrap=True)
    return table
