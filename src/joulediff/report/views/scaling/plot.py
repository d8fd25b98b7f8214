"""A plot in characters on two logarithmic axes, which is legible without colours and in any font of equal widths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEAST_WIDTH = 40
_FIT_MARK = "."
# Where different series have the same character cell.
_SHARED_MARK = "*"


@dataclass(frozen=True, slots=True)
class Series:
    """Points with one mark, and the curve that was fitted to them."""

    name: str
    mark: str
    points: Sequence[tuple[float, float]]
    curve: Callable[[float], float] | None = None


def plot(series: Sequence[Series], *, width: int, height: int, show_y: Callable[[float], str]) -> list[str]:
    """Return the lines of a plot, at most `width` characters wide; none without two different sizes."""
    points = [(x, y) for each in series for x, y in each.points if x > 0 and y > 0 and math.isfinite(y)]
    if len({x for x, _ in points}) < 2:
        return []
    first_x, last_x = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    if high < 2 * low:  # a constant is a line in the middle, without its noise magnified to the full height
        low, high = low / 2, high * 2
    ends = [show_y(high), show_y(math.sqrt(low * high)), show_y(low)]
    margin = max(map(len, ends))
    columns = max(width, LEAST_WIDTH) - margin - 3
    grid = [[" "] * columns for _ in range(height)]

    def column(x: float) -> int:
        return round((columns - 1) * math.log(x / first_x) / math.log(last_x / first_x))

    def row(y: float) -> int:
        return round((height - 1) * math.log(high / y) / math.log(high / low))

    for each in series:
        if each.curve is not None:
            for at in range(columns):
                y = each.curve(first_x * (last_x / first_x) ** (at / (columns - 1)))
                if low <= y <= high:
                    grid[row(y)][at] = _FIT_MARK
    for each in series:
        for x, y in each.points:
            if x > 0 and low <= y <= high:
                cells, at = grid[row(y)], column(x)
                cells[at] = each.mark if cells[at] in (" ", _FIT_MARK, each.mark) else _SHARED_MARK
    labels = {0: ends[0], (height - 1) // 2: ends[1], height - 1: ends[2]}
    lines = [f"{labels.get(at, ''):>{margin}} |{''.join(cells)}".rstrip() for at, cells in enumerate(grid)]
    left, right = f"n = {first_x:,.0f}", f"{last_x:,.0f}"
    lines.append(f"{'':>{margin}} +{'-' * columns}")
    lines.append(f"{'':>{margin}}  {left}{right:>{columns - len(left)}}")
    return lines


def legend(series: Sequence[Series], lines: Sequence[str]) -> str:
    """Return what the marks of a plot mean."""
    parts = [f"{each.mark} {each.name}" for each in series]
    parts += [f"{_FIT_MARK} fit"] if any(each.curve is not None for each in series) else []
    parts += [f"{_SHARED_MARK} several"] if any(_SHARED_MARK in line.partition("|")[2] for line in lines) else []
    return "   ".join(parts)
