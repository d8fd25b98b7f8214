"""Decide which rows of a diff differ by more than the threshold and by more than noise.

A row with the same operators, shapes and kernels on both sides is no finding: its code cannot be the cause of a
difference. Its energy counts all the same, and may be a part that is not explained. Every other row is tested against
its interval and the spread between recordings, and the probabilities are corrected for the number of tests (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.matching.rows import RegionGroup
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy, Source, agree, costlier_side, difference_j, joules_of, weakest
from joulediff.model.finding import Region
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.run import work_of
from joulediff.model.stats import CONFIDENCE_SIGMAS

# Spread of an operator's energy between recordings in two processes (one sigma, as a share): operators of BERT,
# ResNet-50 and GPT-2 on an H200, without those at its power limit. An estimate follows the CPU time of a busy machine.
SPREAD = {"metered": 0.02, "replayed": 0.03, "attributed": 0.05, "estimated": 0.10}
# Spread of a step between recordings that were not made in alternation: one sigma of each, as a share. Two recordings
# of BERT on an H200 are 6 % apart (`tests/golden/match`); 12 of Python and of products on the virtual machine had 6 %
# and 1.3 %, since its speed drifts.
RECORDING_SPREAD: Mapping[Source, float] = {"metered": 0.02, "replayed": 0.02, "attributed": 0.02, "estimated": 0.05}
# The same of whole scripts that ran once each, with what they read from disks and wait for. Chosen: for a meter the
# spread of a single pair of processes (`gate/judge.py`), for an estimate that of an operator.
SCRIPT_SPREAD: Mapping[Source, float] = {"metered": 0.04, "replayed": 0.04, "attributed": 0.04, "estimated": 0.10}
# The same of two programs that a diff measures in alternation, in two turns of seconds each: the ratio of the README's
# programs has 2.2 % between diffs on a 2-core virtual machine (`benchmarks/first_run.py`). On an H200 the interval of
# the meter holds it (`benchmarks/aa.py`).
INTERLEAVED_SPREAD: Mapping[Source, float] = {"metered": 0.0, "replayed": 0.0, "attributed": 0.0, "estimated": 0.015}
# A difference below this share of a step is not reported.
LEAST_SHARE = 0.005
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class RowComparison:
    """One row with its energies. `same` says that both sides ran the same kernels on the same shapes."""

    group: RegionGroup
    members: tuple[Region, ...]
    energy_a: Energy | None
    energy_b: Energy | None
    same: bool
    p_value: float | None = None
    side: SideName | None = None
    """The side to treat as expensive, if these energies do not decide it."""

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(self.energy_a, self.energy_b)

    @property
    def delta_j(self) -> float:
        """The extra energy of a; negative if b costs more."""
        return difference_j(*self.energies)

    @property
    def expensive(self) -> SideName:
        """The side that costs more."""
        return self.side or costlier_side(*self.energies)


def compare_rows(comparison: Comparison, *, same_work_counts: bool = False) -> list[RowComparison]:
    """Return every row of regions with its energies and the probability of such a difference from noise alone.

    With `same_work_counts`, a row with the same work on both sides is tested like any other.
    """
    rows = []
    for group in comparison.groups:
        members = tuple(comparison.by_id[number] for number in group.regions)
        energy_a = comparison.costs["a"].of(op for region in members for op in region.a)
        energy_b = comparison.costs["b"].of(op for region in members for op in region.b)
        same = not same_work_counts and all(_is_same(comparison, each) for each in members)
        rows.append(RowComparison(group, members, energy_a, energy_b, same))
    tested = [row for row in rows if not row.same and _is_known(comparison, row)]
    corrected = dict(zip(map(id, tested), correct([chance(*row.energies) for row in tested]), strict=True))
    return [replace(row, p_value=corrected.get(id(row))) for row in rows]


def may_differ(row: RowComparison, thresholds: Thresholds, total_j: float) -> bool:
    """Return whether a row differs by more than the threshold and by enough to matter; it may still be noise."""
    if row.p_value is None or abs(row.delta_j) < LEAST_SHARE * total_j:
        return False
    return abs(row.delta_j) > thresholds.threshold * min(map(joules_of, row.energies))


def is_different(row: RowComparison, thresholds: Thresholds, total_j: float) -> bool:
    """Return whether a row differs by more than the threshold, both intervals and noise."""
    if row.p_value is None or row.p_value >= ALPHA or agree(*row.energies):
        return False
    return may_differ(row, thresholds, total_j)


def step_spread(a: Energy | None, b: Energy | None, *, interleaved: bool) -> float:
    """Return the spread of the energy of a step beside its interval: one sigma of each side, as a share."""
    known = [energy for energy in (a, b) if energy is not None]
    return (INTERLEAVED_SPREAD if interleaved else RECORDING_SPREAD)[weakest(known)] if known else 0.0


def chance(a: Energy | None, b: Energy | None, *, spread: Mapping[str, float] = SPREAD) -> float:
    """Return the probability that two energies differ this much by chance; a side without work costs exactly zero."""
    delta_j = difference_j(a, b)
    sigma = math.hypot(_sigma(a, -delta_j, spread), _sigma(b, delta_j, spread))
    if not sigma:
        return 1.0 if not delta_j else 0.0
    return math.erfc(abs(delta_j) / sigma / math.sqrt(2))


def correct(p_values: Sequence[float]) -> list[float]:
    """Return probabilities corrected for the number of tests by Holm's method."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    found, highest = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, p_values[at] * (len(p_values) - rank)))
        found[at] = highest
    return found


def _sigma(energy: Energy | None, toward: float, spread: Mapping[str, float]) -> float:
    """Return the standard deviation of an energy towards the other one."""
    if energy is None:
        return 0.0
    toward_j = energy.above_j if toward > 0 else energy.below_j
    return math.hypot(toward_j / CONFIDENCE_SIGMAS, spread[energy.source] * joules_of(energy))


def _is_known(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether the energy of a row is known on both sides: work without a meter or a trace is not free."""
    energies = row.energies
    return any(energies) and all(energies.of(side) or _is_nothing(comparison, side, row) for side in SIDES)


def _is_nothing(comparison: Comparison, side: SideName, row: RowComparison) -> bool:
    costs = comparison.costs[side]
    ops = [op for region in row.members for op in ops_of(region, side)]
    is_idle = not any(costs.kernels[op] or not costs.run.index.is_costed(op) for op in ops)
    return costs.books.split is not None and is_idle


def _is_same(comparison: Comparison, region: Region) -> bool:
    """Return whether both sides run the same operators on the same shapes with the same kernels."""
    if len(region.a) != len(region.b):
        return False
    return all(_is_same_op(comparison, a, b) for a, b in zip(region.a, region.b, strict=True))


def _is_same_op(comparison: Comparison, a: int, b: int) -> bool:
    if work_of(comparison.a, a) != work_of(comparison.b, b):
        return False
    # A kernel of a GPU is named after its implementation; one of the host is not.
    return comparison.a.ops[a].device != "cpu" or comparison.same_settings(a, b)
