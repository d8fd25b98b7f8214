"""A match as rows, a table and sentences: similar regions are one row, with its energy in both runs.

Every operator is in one row of its side, matched or not, so the rows sum to the run, also as printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from joulediff.diagnosis.comparison import name_divergence
from joulediff.energy.ledger import Costs
from joulediff.frameworks.framework import short_name
from joulediff.matching.rows import RegionGroup, group_regions
from joulediff.model.diff import NamedDivergence
from joulediff.model.energy import Energy, joules_of, share_of
from joulediff.model.finding import Basis, Match, Region, RegionKind
from joulediff.model.run import Run
from joulediff.model.units import format_share, format_si
from joulediff.report.sanitize import plain_text
from joulediff.report.views.columns import Column, Emphasis, TextTable
from joulediff.report.views.diff_sentences import REST_OF_CALLS, divergence_texts
from joulediff.report.views.short_texts import count_text, format_places, pick_unit, round_to_sum

_SIDES = ("A", "B")
_UNMATCHED = "no counterpart"
_COUNTS = ("×", "ops A", "ops B")
# At most this many names of operators without a counterpart are shown.
_NAMES = 6
_KINDS: dict[RegionKind, str] = {
    "equal": "with equal results",
    "movement": "moving data",
    "repeated": "computed again",
    "constant": "constant",
    "unused": "unused",
}
_BASES: dict[Basis, str] = {
    "equal": "equal",
    "executed": "verified by execution",
    "drift": "within drift",
    "call": "by the calls around them",
}


@dataclass(frozen=True, slots=True)
class MatchSide:
    """One run of a match. Energies are those of operators in one step; None if unknown."""

    run: Run
    energy: Energy | None
    matched: tuple[int, ...]
    unmatched: tuple[int, ...]
    matched_energy: Energy | None
    unmatched_energy: Energy | None

    @property
    def share_of_ops(self) -> float:
        """Return the share of operators that are matched."""
        return len(self.matched) / len(self.run.ops) if self.run.ops else 1.0

    @property
    def share_of_energy(self) -> float | None:
        """Return the share of the energy that is matched; None if unknown."""
        return share_of(joules_of(self.matched_energy), self.energy)


@dataclass(frozen=True, slots=True)
class MatchRow:
    """Similar regions."""

    group: RegionGroup
    is_of_calls: bool
    """Whether its regions are the rest of calls with equal outputs."""
    energy_a: Energy | None
    energy_b: Energy | None


@dataclass(frozen=True)
class MatchReport:
    """A match with its energies."""

    a: MatchSide
    b: MatchSide
    match: Match
    rows: Sequence[MatchRow]
    energies: Mapping[int, tuple[Energy | None, Energy | None]]
    """By region: the energies of both sides."""

    @property
    def regions(self) -> Sequence[Region]:
        """The regions of the match."""
        return self.match.regions

    @cached_property
    def divergences(self) -> list[NamedDivergence]:
        """Where the runs begin to differ."""
        return [name_divergence(self.a.run, self.b.run, each) for each in self.match.divergences]

    def unmatched_names(self, side: MatchSide) -> list[tuple[str, int]]:
        """Return the operators without a counterpart by name, the most frequent first."""
        return Counter(side.run.ops[op].name for op in side.unmatched).most_common()


def report_match(a: Run, b: Run, match: Match) -> MatchReport:
    """Return the rows of a match, those with the most energy on either side first."""
    costs_a, costs_b = Costs(a), Costs(b)
    regions = match.regions
    energies = {each.id: (costs_a.of(each.a), costs_b.of(each.b)) for each in regions}
    by_id = {each.id: each for each in regions}
    rows = []
    for group in group_regions(a, b, regions):
        members = [by_id[number] for number in group.regions]
        ops_a = [op for each in members for op in each.a]
        ops_b = [op for each in members for op in each.b]
        rows.append(MatchRow(group, members[0].basis == "call", costs_a.of(ops_a), costs_b.of(ops_b)))
    rows.sort(key=lambda row: -max(joules_of(row.energy_a), joules_of(row.energy_b)))
    side_a = _side(a, costs_a, {op for each in regions for op in each.a})
    side_b = _side(b, costs_b, {op for each in regions for op in each.b})
    return MatchReport(side_a, side_b, match, rows, energies)


def _side(run: Run, costs: Costs, matched: set[int]) -> MatchSide:
    ours = tuple(op.id for op in run.ops if op.id in matched)
    rest = tuple(op.id for op in run.ops if op.id not in matched)
    return MatchSide(run, costs.of(op.id for op in run.ops), ours, rest, costs.of(ours), costs.of(rest))


def side_texts(report: MatchReport) -> Iterator[tuple[str, str, str]]:
    """Yield for A and B: the letter, the label, and how much of the run is matched."""
    for letter, side in zip(_SIDES, (report.a, report.b), strict=True):
        energy = "" if side.energy is None else f", {format_si(side.energy.joules, 'J')} a step"
        about = f"{count_text(len(side.run.ops), 'operator')}{energy}: {_shares(side)}"
        yield letter, plain_text(side.run.label), about


def kinds_text(report: MatchReport) -> str:
    """Return the number of regions of each kind: `596 regions: 210 with equal results, 383 moving data`."""
    counts = Counter(region.kind for region in report.regions)
    kinds = [f"{counts[kind]:,} {word}" for kind, word in _KINDS.items() if counts[kind]]
    return f"{count_text(len(report.regions), 'region')}: {', '.join(kinds) or 'nothing in common'}"


def basis_text(report: MatchReport) -> str:
    """Return how regions were matched: `149 with equal results: 120 equal, 29 within drift (largest 4.2%)`."""
    found = [region for region in report.regions if region.kind == "equal"]
    if not found:
        return ""
    counts = Counter(region.basis for region in found)
    largest = max((region.drift or 0.0 for region in found if region.basis == "drift"), default=0.0)
    parts = []
    for basis, words in _BASES.items():
        about = f" (largest {format_share(largest)})" if basis == "drift" else ""
        parts += [f"{counts[basis]:,} {words}{about}"] if counts[basis] else []
    how = "all equal within the rounding of their float types" if counts.keys() == {"equal"} else ", ".join(parts)
    return f"{len(found):,} with equal results: {how}"


def difference_texts(report: MatchReport) -> list[str]:
    """Return the notes of the match, and a sentence for each of the first places where the runs differ."""
    texts = divergence_texts(report.divergences, agree=report.match.outputs_agree)
    return [plain_text(text) for text in (*report.match.notes, *texts)]


def unmatched_texts(report: MatchReport) -> Iterator[str]:
    """Yield a sentence for each run that has operators without a counterpart."""
    for letter, side in zip(_SIDES, (report.a, report.b), strict=True):
        names = report.unmatched_names(side)
        if names:
            shown = ", ".join(f"{plain_text(short_name(name))} ×{count}" for name, count in names[:_NAMES])
            rest = f", {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            yield f"{_UNMATCHED} in {letter}: {shown}{rest}"


def match_table(report: MatchReport, top: int) -> TextTable:
    """Return the first `top` rows, the others as one row, operators without a counterpart, and the total."""
    rows, more = report.rows[:top], report.rows[top:]
    sides = (report.a, report.b)
    lines = [[*_counts(row), _label(row), plain_text(row.group.where)] for row in rows]
    emphasis: list[Emphasis] = ["" if row.group.kind == "equal" else "minor" for row in rows]
    if more:
        regions = sum(len(row.group.regions) for row in more)
        lines.append([f"{regions:,}", "", "", f"{len(more):,} more", ""])
        emphasis.append("minor")
    has_unmatched = bool(report.a.unmatched or report.b.unmatched)
    if has_unmatched:
        counted = [f"{len(side.unmatched):,}" if side.unmatched else "" for side in sides]
        lines.append(["", *counted, _UNMATCHED, ""])
        emphasis.append("warning")
    lines.append([f"{len(report.regions):,}", *(f"{len(side.run.ops):,}" for side in sides), "all operators", ""])
    emphasis.append("total")
    energies = _energy_columns(report, rows, more, has_unmatched=has_unmatched)
    *counts, names, places = zip(*lines, strict=True)
    numbers = (Column(head, cells, is_right=True) for head, cells in zip(_COUNTS, counts, strict=True))
    texts = (Column("region", names, cut="end"), Column("where", places, cut="begin"))
    return TextTable((*energies, *numbers, *texts), tuple(emphasis))


def _counts(row: MatchRow) -> list[str]:
    group = row.group
    return [f"{len(group.regions):,}", *(str(ops) if ops else "-" for ops in (group.ops_a, group.ops_b))]


def _label(row: MatchRow) -> str:
    name = plain_text(row.group.name)
    if row.is_of_calls:
        return f"{name} ({REST_OF_CALLS})"
    return name if row.group.kind == "equal" else f"{name} ({_KINDS[row.group.kind]})"


def _energy_columns(
    report: MatchReport, rows: Sequence[MatchRow], more: Sequence[MatchRow], *, has_unmatched: bool
) -> list[Column]:
    """Return the joules of both sides: rows, folded rows, operators without a counterpart, and all; each sums up."""
    if report.a.energy is None and report.b.energy is None:
        return []
    factor, unit, places = pick_unit(max(joules_of(side.energy) for side in (report.a, report.b)), "J")
    columns = []
    for at, (letter, side) in enumerate(zip(_SIDES, (report.a, report.b), strict=True)):
        parts = [joules_of(_pick(row, at)) for row in rows]
        folded = [sum(joules_of(_pick(row, at)) for row in more)] if more else []
        rest = [joules_of(side.unmatched_energy)] if has_unmatched else []
        units = round_to_sum([part * 10**places / factor for part in (*parts, *folded, *rest)])
        total = sum(each or 0 for each in units)
        cells = [format_places(each, places) if each else "-" for each in (*units, total)]
        columns.append(Column(f"{unit} of {letter}", cells, is_right=True))
    return columns


def _pick(row: MatchRow, side: int) -> Energy | None:
    return (row.energy_a, row.energy_b)[side]


def _shares(side: MatchSide) -> str:
    of_energy = side.share_of_energy
    found = f"{format_share(side.share_of_ops)} matched"
    return found if of_energy is None else f"{found}, {format_share(of_energy)} of joules"
