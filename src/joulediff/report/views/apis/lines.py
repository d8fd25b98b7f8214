"""The lines of a program by energy: its calls, and the code between two calls.

Calls of one line are one row, and so is the code between two lines. The rows and the other parts sum to the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joulediff.model.apis.api_run import ApiRun, CallSite, Gap
from joulediff.model.energy import Energy, add_common, joules_of
from joulediff.report.views.apis.costs import (
    PROGRAM,
    choose_scale,
    cost_cells,
    emphases,
    gross_costs,
    part_names,
    share_cells,
    spread_text,
    total_account,
)
from joulediff.report.views.apis.table import seconds_cells
from joulediff.report.views.columns import Column, TextTable
from joulediff.report.views.short_texts import count_text, short_files

# Lines that are shown; the Markdown report has all of them beside the source.
TOP_LINES = 8
# Longer names of files are cut at their begin.
_PLACE_CHARS = 30


@dataclass(frozen=True, slots=True)
class ApiLine:
    """The calls of one line, or the code between the calls of two lines."""

    file: str
    line: int | None
    """Of the code between calls: the line of the call before it, None at the begin of the program."""
    before_line: int | None
    """Of the code between calls: the line of the next call, None at the end of the program."""
    is_between: bool
    text: str
    """The source of the callee that takes most of the energy."""
    more: int
    """The number of other callees in the line."""
    function: str
    count: int
    seconds: float
    energy: Energy | None
    """Without the calls inside of these calls."""


def api_lines(run: ApiRun) -> list[ApiLine]:
    """Return all lines with calls, and all code between calls; the highest energy first."""
    by_line: dict[tuple[str, int], list[CallSite]] = {}
    for api in run.apis:
        for site in api.sites:
            by_line.setdefault((site.file, site.line), []).append(site)
    found = [_line(sites) for sites in by_line.values()]
    found += [_between(gap) for gap in run.gaps]
    return sorted(found, key=lambda each: (-joules_of(each.energy), -each.seconds, each.file, each.line or 0))


def between_text(after_line: int | None, before_line: int | None) -> str:
    """Return what the code between two calls is called beside the line of the first: `code after it, to line 15`."""
    if after_line is None:
        return "code before the first call" if before_line is None else f"code before line {before_line}"
    return f"code after it, to {'the end' if before_line is None else f'line {before_line}'}"


def line_text(line: ApiLine) -> str:
    """Return the callee of a line, and how many others it has."""
    if line.is_between:
        return between_text(line.line, line.before_line)
    return line.text + (f" and {count_text(line.more, 'more call')}" if line.more else "")


def place_text(name: str, line: int | None) -> str:
    """Return the file and the line: `train.py:12`; the file alone at the begin of the program."""
    text = name if line is None else f"{name}:{line}"
    return text if len(text) <= _PLACE_CHARS else f"…{text[1 - _PLACE_CHARS :]}"


def line_table(run: ApiRun, *, top: int = TOP_LINES, every: bool = False) -> TextTable | None:
    """Return the lines with the most energy, the other parts of the program, and the program; None without any."""
    lines = api_lines(run)
    if not lines:
        return None
    shown = lines if every or len(lines) <= top + 1 else lines[: max(top, 1)]
    hidden = lines[len(shown) :]
    energies = [*(line.energy for line in shown), *([_sum(line.energy for line in hidden)] if hidden else [])]
    costs = gross_costs(energies, total_account(run), between=False)
    scale = choose_scale(costs.whole)
    parts = part_names([costs], scale) if costs.is_known else []
    more = [f"{count_text(len(hidden), 'more line')}"] if hidden else []
    seconds = [*(line.seconds for line in shown), *([math.fsum(line.seconds for line in hidden)] if hidden else [])]
    names = short_files(line.file for line in lines)
    blank = [""] * (len(parts) + 1)
    found: list[Column] = []
    if costs.is_known:
        found += [
            Column(scale.unit, cost_cells(costs, scale, parts), is_right=True),
            Column("share", share_cells(costs, scale, parts), is_right=True),
            Column("±", [*map(spread_text, energies), *blank[1:], spread_text(run.energy)], is_right=True, spare=1),
        ]
    times = seconds_cells(seconds, {}, parts, run.seconds)
    found += [
        times,
        Column("times", [*(f"{line.count:,}" for line in shown), *["" for _ in more], *blank], is_right=True, spare=0),
        Column("line", [*(place_text(names[line.file], line.line) for line in shown), *more, *parts, PROGRAM]),
        Column("code", [*map(line_text, shown), *["" for _ in more], *blank], cut="end"),
        Column("in", [*(line.function for line in shown), *["" for _ in more], *blank], cut="end", is_minor=True),
    ]
    return TextTable(tuple(found), emphases(len(shown), len(more) + len(parts)))


def _line(sites: Sequence[CallSite]) -> ApiLine:
    callees = {(site.column, site.text) for site in sites}
    most = max(sites, key=lambda site: joules_of(site.self_energy))
    return ApiLine(
        file=most.file,
        line=most.line,
        before_line=None,
        is_between=False,
        text=most.text,
        more=len(callees) - 1,
        function=most.function,
        count=sum(site.calls for site in sites),
        seconds=math.fsum(site.self_seconds for site in sites),
        energy=_sum(site.self_energy for site in sites),
    )


def _between(gap: Gap) -> ApiLine:
    return ApiLine(gap.file, gap.after_line, gap.before_line, True, "", 0, "", gap.count, gap.seconds, gap.energy)


def _sum(energies: Iterable[Energy | None]) -> Energy | None:
    """Return a sum whose errors add up: one meter saw all of it."""
    return add_common(each for each in energies if each is not None)
