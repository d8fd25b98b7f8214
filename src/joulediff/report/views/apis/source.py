"""The source of a program with the energy of each line: what its calls take, and the code after them.

The calls of a file and the code between them are on its lines, so the energies of a file that is shown whole sum to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.model.apis.api_run import ApiRun
from joulediff.model.energy import Energy, add_common
from joulediff.report.sanitize import plain_text
from joulediff.report.views.apis.costs import (
    amount_cell,
    choose_scale,
    cost_units,
    gross_costs,
    part_names,
    share_text,
    total_account,
)
from joulediff.report.views.apis.lines import ApiLine, api_lines
from joulediff.report.views.run.ledger import Scale

# A longer file is shown in parts: this many lines before and after each line with a call.
WHOLE_LINES = 80
CONTEXT_LINES = 3
_NEWLINE = re.compile("\r\n|\r|\n")
_TAB = 4


@dataclass(frozen=True, slots=True)
class AnnotatedFile:
    """A file, and its lines as they are shown."""

    file: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Amount:
    """Joules of some code in units of the last place; None is unknown."""

    units: int | None
    energy: Energy | None


@dataclass(frozen=True, slots=True)
class _FileCosts:
    """The amounts of a file, by line number."""

    calls: Mapping[int, _Amount]
    between: Mapping[int, tuple[str, _Amount]]
    """Of the code after a line, with the text that stands for it."""


def annotate_sources(run: ApiRun, *, every: bool = False) -> list[AnnotatedFile]:
    """Return the recorded files with joules and shares on the left; long ones in parts unless `every` is set."""
    measured = api_lines(run)
    whole = total_account(run).metered
    scale = choose_scale(whole)
    costs = gross_costs([line.energy for line in measured], total_account(run), between=False)
    units = cost_units(costs, scale, part_names([costs], scale))
    amounts = [(line, _Amount(each, line.energy)) for line, each in zip(measured, units, strict=False)]
    gutter = _Gutter(scale, _Amount(units[-1], whole))
    found = []
    for source in run.sources:
        texts = _NEWLINE.split(source.text.removesuffix("\n"))
        lines = {source.first + at: plain_text(text.expandtabs(_TAB)) for at, text in enumerate(texts)}
        here = _file_costs([each for each in amounts if each[0].file == source.file], source.first)
        kept = lines if every or len(lines) <= WHOLE_LINES else _near(lines, [*here.calls, *here.between])
        found.append(AnnotatedFile(plain_text(source.file), tuple(gutter.rows(kept, lines, here))))
    return found


def _file_costs(amounts: Sequence[tuple[ApiLine, _Amount]], first: int) -> _FileCosts:
    calls = {line.line: amount for line, amount in amounts if not line.is_between and line.line is not None}
    after: defaultdict[int, list[tuple[ApiLine, _Amount]]] = defaultdict(list)
    for line, amount in amounts:
        if line.is_between:
            # What runs before the first call stands above the line of that call.
            place = line.line if line.line is not None else (line.before_line or first) - 1
            after[place].append((line, amount))
    return _FileCosts(calls, {place: _join(parts) for place, parts in after.items()})


def _join(parts: Sequence[tuple[ApiLine, _Amount]]) -> tuple[str, _Amount]:
    """Return the code after one line, to all the lines that it leads to."""
    numbers = sorted({line.before_line for line, _ in parts if line.before_line is not None})
    places = [f"line{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"] if numbers else []
    if any(line.before_line is None for line, _ in parts):
        places.append("the end")
    known = [amount.units for _, amount in parts if amount.units is not None]
    energy = add_common(amount.energy for _, amount in parts if amount.energy is not None)
    return f"code to {' and '.join(places)}", _Amount(sum(known) if known else None, energy)


def _near(lines: Iterable[int], places: Iterable[int]) -> list[int]:
    """Return the numbers of the lines near a place."""
    near = {place + away for place in places for away in range(-CONTEXT_LINES, CONTEXT_LINES + 1)}
    return [number for number in lines if number in near]


@dataclass(frozen=True, slots=True)
class _Gutter:
    """The columns to the left of the source."""

    scale: Scale
    whole: _Amount

    def rows(self, kept: Iterable[int], lines: Mapping[int, str], costs: _FileCosts) -> Iterator[str]:
        """Yield the lines that are kept, with the code after each; dots stand for those that are not."""
        room = len(str(max(lines)))
        before = min(lines) - 1
        yield from self._between(before, costs, room)
        for number in kept:
            if number != before + 1:
                yield "…"
            yield self._row(costs.calls.get(number), f"{number:>{room}} │ {lines[number]}")
            yield from self._between(number, costs, room)
            before = number
        if before != max(lines):
            yield "…"

    def _between(self, number: int, costs: _FileCosts, room: int) -> Iterator[str]:
        if number in costs.between:
            text, amount = costs.between[number]
            yield self._row(amount, f"{'':>{room}} ┊ {text}")

    def _row(self, amount: _Amount | None, text: str) -> str:
        room = len(self._joules(self.whole))
        if amount is None:
            return f"{'':>{room}}        {text}".rstrip()
        share = "" if amount.units is None or not self.whole.units else share_text(self._tenths(amount.units))
        return f"{self._joules(amount):>{room}} {share:>6} {text}".rstrip()

    def _joules(self, amount: _Amount) -> str:
        return f"{amount_cell(amount.units, amount.energy, self.scale)} {self.scale.unit}"

    def _tenths(self, units: int) -> int:
        return round(1000 * units / (self.whole.units or 1))
