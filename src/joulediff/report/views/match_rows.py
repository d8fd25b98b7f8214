"""A match as rows: similar regions are one row, with its energy in both runs.

Every operator is in one row of its side, matched or not, so the rows sum to the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulediff.energy.ledger import Costs
from joulediff.matching import RegionGroup, group_regions
from joulediff.model.energy import Energy, joules_of
from joulediff.model.finding import Region
from joulediff.model.run import Run


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
        if self.energy is None or not self.energy.joules > 0:
            return None
        return 0.0 if self.matched_energy is None else self.matched_energy.joules / self.energy.joules


@dataclass(frozen=True, slots=True)
class MatchRow:
    """Similar regions."""

    group: RegionGroup
    energy_a: Energy | None
    energy_b: Energy | None


@dataclass(frozen=True, slots=True)
class MatchReport:
    """A match with its energies."""

    a: MatchSide
    b: MatchSide
    regions: Sequence[Region]
    rows: Sequence[MatchRow]
    energies: Mapping[int, tuple[Energy | None, Energy | None]]
    """By region: the energies of both sides."""

    def unmatched_names(self, side: MatchSide) -> list[tuple[str, int]]:
        """Return the operators without a counterpart by name, the most frequent first."""
        return Counter(side.run.ops[op].name for op in side.unmatched).most_common()


def report_match(a: Run, b: Run, regions: Sequence[Region]) -> MatchReport:
    """Return the rows of a match, those with the most energy on either side first."""
    costs_a, costs_b = Costs(a), Costs(b)
    energies = {each.id: (costs_a.of(each.a), costs_b.of(each.b)) for each in regions}
    by_id = {each.id: each for each in regions}
    rows = []
    for group in group_regions(a, b, regions):
        members = [by_id[number] for number in group.regions]
        ops_a = [op for each in members for op in each.a]
        ops_b = [op for each in members for op in each.b]
        rows.append(MatchRow(group, costs_a.of(ops_a), costs_b.of(ops_b)))
    rows.sort(key=lambda row: -max(joules_of(row.energy_a), joules_of(row.energy_b)))
    side_a = _side(a, costs_a, {op for each in regions for op in each.a})
    side_b = _side(b, costs_b, {op for each in regions for op in each.b})
    return MatchReport(side_a, side_b, regions, rows, energies)


def _side(run: Run, costs: Costs, matched: set[int]) -> MatchSide:
    ours = tuple(op.id for op in run.ops if op.id in matched)
    rest = tuple(op.id for op in run.ops if op.id not in matched)
    return MatchSide(run, costs.of(op.id for op in run.ops), ours, rest, costs.of(ours), costs.of(rest))
