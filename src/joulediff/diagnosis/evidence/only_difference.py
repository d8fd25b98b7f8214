"""Evidence: two programs differ in one row only, so the difference of their whole steps is its trial.

This is the only trial of work that cannot be run alone: a collective waits for other processes, and compiled code has
no operator to run. It is valid only for programs that were measured in alternation, if no other row, setting or
operator differs and no time is lost elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.evidence.host.idle_device import part_energy
from joulediff.diagnosis.evidence.recorded_settings import differing_settings
from joulediff.diagnosis.significance import RowComparison, may_differ
from joulediff.frameworks.framework import framework_of, is_read
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy, costlier_side, difference_j, is_more_than, joules_of, share_of, subtract
from joulediff.model.finding import Region, Trial
from joulediff.model.pair import SIDES, Pair, SideName, other_side
from joulediff.model.run import Op, Run, work_of

CHANGE = "the calls of the other program, which differs in nothing else"
_NOTE = "it cannot be replayed; both programs were measured in alternation"
# This share of the extra time may be lost elsewhere: one traced step on a busy machine is no more exact.
_ELSEWHERE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class OnlyDifference:
    """The one row in which two programs differ, with the trial that their whole steps make."""

    regions: tuple[int, ...]
    expensive: SideName
    trial: Trial
    saved_j: float
    saved_share: float | None

    def is_row(self, row: RowComparison) -> bool:
        """Return whether a row is that one."""
        return row.group.regions == self.regions and row.expensive == self.expensive

    def without_shared(self, row: RowComparison) -> RowComparison:
        """Return the row without the regions that the cheap side has as well."""
        cheap = other_side(self.expensive)
        return replace(row, members=tuple(region for region in row.members if not ops_of(region, cheap)))


def find_only_difference(
    comparison: Comparison, rows: Sequence[RowComparison], limits: Thresholds
) -> OnlyDifference | None:
    """Return the only row that differs, if it cannot be run again and the whole steps clearly differ.

    Only valid for runs that were measured in alternation.
    """
    totals = Pair(*(comparison.costs[side].total for side in SIDES))
    expensive = costlier_side(*totals)
    before, after = totals.of(expensive), totals.of(other_side(expensive))
    if before is None or after is None or not _is_clear(before, after, limits):
        return None
    delta_j = difference_j(before, after)
    different = [row for row in rows if not row.same]
    # The work of other processes in a collective is not recorded, so no collective is sure to be the same.
    doubtful = [row for row in rows if row.same and _is_unrepeatable(comparison, row)]
    found = [row for row in different if may_differ(row, limits, joules_of(before))]
    if len(found) != 1 or found[0].expensive != expensive or not _is_left_out(comparison, found[0]):
        return None
    others = [*(row for row in different if row is not found[0]), *doubtful]
    most_j = _most_j(comparison, others, other_side(expensive))
    if (
        most_j > limits.threshold * delta_j
        or not _is_same_elsewhere(comparison)
        or not _is_in_place(comparison, different, expensive)
    ):
        return None
    trial = Trial(CHANGE, before, after, after, explains=True, note=_NOTE, of_step=True)
    return OnlyDifference(found[0].group.regions, expensive, trial, delta_j, share_of(delta_j, before))


def _is_clear(before: Energy, after: Energy, limits: Thresholds) -> bool:
    """Return whether the steps differ by more than the threshold, with an interval that excludes zero."""
    saved = subtract(before, [after])
    is_sure = saved is not None and saved.is_surely_positive
    return is_sure and joules_of(after) > 0 and is_more_than(joules_of(saved), limits.threshold, after)


def _is_left_out(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether a row cannot be run again and the cheap side has fewer of the same calls, or none."""
    cheap = other_side(row.expensive)
    both = [region for region in row.members if ops_of(region, cheap)]
    is_fewer = len(both) < len(row.members)
    return is_fewer and _is_unrepeatable(comparison, row) and all(_is_same_call(comparison, region) for region in both)


def _is_same_call(comparison: Comparison, region: Region) -> bool:
    # The kernels of a collective or a compiled region are not known for each call, so they are not compared.
    calls_a, calls_b = (
        [work_of(run, op, device=False, alignment=False, kernels=False) for op in ops]
        for run, ops in ((comparison.a, region.a), (comparison.b, region.b))
    )
    return calls_a == calls_b


def _is_unrepeatable(comparison: Comparison, row: RowComparison) -> bool:
    run, kernels = comparison.run(row.expensive), comparison.costs[row.expensive].kernels
    ops = [op for region in row.members for op in ops_of(region, row.expensive) if kernels[op]]
    return bool(ops) and all(_cannot_run(run, run.ops[op]) for op in ops)


def _cannot_run(run: Run, op: Op) -> bool:
    if op.compiled:
        return True
    is_replayed = any(replay.is_measured for replay in run.replays_of(op.id))
    # Operators of the framework can be tried even if their replay failed.
    return not is_replayed and framework_of(op.name) is None


def _most_j(comparison: Comparison, rows: Sequence[RowComparison], cheap: SideName) -> float:
    """Return an upper limit on the energy of rows and the host's work for them; infinite if one is not known.

    The host's work per operator is taken from the cheap program: in the other one the difference itself may add to it.
    """
    if not all(_is_known(comparison, row) for row in rows) or any(_reads_device(comparison, row) for row in rows):
        return math.inf
    accounts, count = comparison.costs[cheap].books.accounts, len(comparison.run(cheap).ops)
    host_j = sum(joules_of(part_energy(accounts, part)) for part in ("host", "waits")) / max(1, count)
    own_j = sum(max(map(_high, row.energies)) for row in rows)
    return own_j + host_j * sum(len(region.a) + len(region.b) for row in rows for region in row.members)


def _is_known(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether the energies of a row are known; an operator without a kernel costs nothing, if that is known."""
    unknown = [side for side in SIDES if row.energies.of(side) is None]
    return not any(
        comparison.costs[side].kernels[op] or not comparison.run(side).index.is_costed(op)
        for side in unknown
        for region in row.members
        for op in ops_of(region, side)
    )


def _high(energy: Energy | None) -> float:
    return 0.0 if energy is None else energy.high


def _reads_device(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether a row makes the host wait for a device: that cost is not in its operators."""
    return any(
        is_read(comparison.run(side).ops[op].name) and comparison.run(side).ops[op].device != "cpu"
        for side in SIDES
        for region in row.members
        for op in ops_of(region, side)
    )


def _is_same_elsewhere(comparison: Comparison) -> bool:
    """Return whether settings, and operators and kernels outside of regions, are the same on both sides."""
    matched = {side: {op for region in comparison.regions for op in ops_of(region, side)} for side in SIDES}
    loose = [
        Counter(kernel.name for kernel in run.kernels if kernel.op is None) for run in (comparison.a, comparison.b)
    ]
    return (
        all(len(matched[side]) == len(comparison.run(side).ops) for side in SIDES)
        and loose[0] == loose[1]
        and not differing_settings(comparison.a.settings, comparison.b.settings)
    )


def _is_in_place(comparison: Comparison, rows: Sequence[RowComparison], expensive: SideName) -> bool:
    """Return whether the extra time of the expensive step is lost at these rows, not at other operators."""
    runs = [comparison.run(side) for side in (expensive, other_side(expensive))]
    rest_s = [
        _elsewhere_s(run, {op for row in rows for region in row.members for op in ops_of(region, side)})
        for run, side in zip(runs, (expensive, other_side(expensive)), strict=True)
    ]
    if rest_s[0] is None or rest_s[1] is None:
        return False
    more_s = (runs[0].traced_s or 0.0) - (runs[1].traced_s or 0.0)
    return rest_s[0] - rest_s[1] <= _ELSEWHERE_SHARE * max(0.0, more_s)


def _elsewhere_s(run: Run, ops: set[int]) -> float | None:
    """Return the time of a traced step without these operators and the gaps after them; None without a trace."""
    if run.traced_s is None:
        return None
    kernels = sorted((kernel for kernel in run.kernels if kernel.op is not None), key=lambda each: each.start_s)
    ends_s = [*(kernel.start_s for kernel in kernels[1:]), run.traced_s]
    return run.traced_s - sum(
        end_s - kernel.start_s for kernel, end_s in zip(kernels, ends_s, strict=True) if kernel.op in ops
    )
