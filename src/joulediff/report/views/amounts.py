"""Counts, ratios and quantities side by side, as the words of a diff hold them. Nothing is printed that is nonsense."""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.model.run import Setting
from joulediff.report.columns import cut_end, format_places, pick_unit

# More digits than a ratio ever has.
_MOST_RATIO = 1e6
# Joules or seconds: a step that takes more is a fault in the file.
_MOST = 1e15
_VALUE_ROOM = 40


def with_count(name: str, count: int) -> str:
    """Return a name with how often it is there, where that is more than once."""
    return f"{name} ×{count:,}" if count > 1 else name


def value_text(value: Setting) -> str:
    """Return the value of a setting, short enough to stand in a line."""
    return "not set" if value is None else cut_end(str(value), _VALUE_ROOM)


def ratio_text(ratio: float) -> str:
    """Return a ratio with as many places as tell it from 1: `4.43x`, `1.004x`."""
    if not 0.0 <= ratio < _MOST_RATIO:
        return "?x"
    places = 0 if ratio >= 100 else 1 if ratio >= 10 else 3 if 0.0 < abs(ratio - 1.0) < 0.015 else 2
    return f"{format_places(round(ratio * 10**places), places)}x"


def in_one_unit(values: Sequence[float | None], unit: str = "J") -> list[str]:
    """Return quantities with the digits that the largest needs, and the unit behind the last alone."""
    known = [abs(value) for value in values if value is not None and abs(value) < _MOST]
    factor, name, places = pick_unit(max(known, default=0.0), unit)
    texts = [
        "?" if value is None or not abs(value) < _MOST else format_places(round(value * 10**places / factor), places)
        for value in values
    ]
    return [*texts[:-1], f"{texts[-1]} {name}"]


def count_text(number: int, word: str) -> str:
    """Return how many there are: `1 op`, `12 ops`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
