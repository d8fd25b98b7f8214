"""A proof for work that cannot be run again: the other program, where it differs in nothing else.

A collective waits for other processes, and compiled code has no operator to run. But where all else that two programs
do is the same, and they were measured in turns, the difference of their whole steps is the trial. One doubt is enough:
another row, setting or operator that differs, or time that is lost elsewhere, and there is no proof.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.evidence.host import part_energy
from joulediff.diagnosis.evidence.settings import differing_settings
from joulediff.diagnosis.significance import RowComparison, joules, may_differ
from joulediff.frameworks.framework import framework_of, is_read
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy
from joulediff.model.finding import Confirmation, Finding, Proof, Region, Trial
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.run import Op, Run, work_of

CHANGE = "the calls of the other program, which differs in nothing else"
_NOTE = "it cannot be run alone; both programs were measured in turns"
# So much of the time between two steps may be lost elsewhere: one traced step on a busy machine is no better.
_ELSEWHERE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Alone:
    """The one row in which two programs differ, and their steps as the trial of it."""

    regions: tuple[int, ...]
    expensive: SideName
    trial: Trial
    saved_j: float
    saved_share: float

    def is_about(self, row: RowComparison) -> bool:
        """Return whether a row is that one."""
        return row.group.regions == self.regions and row.expensive == self.expensive

    def lacking(self, row: RowComparison) -> RowComparison:
        """Return a row without the regions that the cheap side has as well."""
        cheap = other_side(self.expensive)
        return replace(row, members=tuple(region for region in row.members if not ops_of(region, cheap)))


def find_alone(sides: Comparison, rows: Sequence[RowComparison], limits: Thresholds) -> Alone | None:
    """Return the only row that differs, where it cannot be run again and the steps differ beyond doubt.

    Only for runs that were measured in turns.
    """
    totals = {side: sides.costs[side].total for side in SIDES}
    expensive: SideName = "a" if joules(totals["a"]) >= joules(totals["b"]) else "b"
    before, after = totals[expensive], totals[other_side(expensive)]
    if before is None or after is None or not _is_clear(before, after, limits):
        return None
    delta_j = before.joules - after.joules
    different = [row for row in rows if not row.same]
    # What other processes do in a collective is not seen, so none is sure to be the same.
    doubtful = [row for row in rows if row.same and _is_unrepeatable(sides, row)]
    found = [row for row in different if may_differ(row, limits, before.joules)]
    if len(found) != 1 or found[0].expensive != expensive or not _is_left_out(sides, found[0]):
        return None
    others = [*(row for row in different if row is not found[0]), *doubtful]
    most_j = _most_j(sides, others, other_side(expensive))
    if most_j > limits.threshold * delta_j or not _is_alike(sides) or not _is_in_place(sides, different, expensive):
        return None
    trial = Trial(CHANGE, before, after, after, explains=True, note=_NOTE, of_step=True)
    return Alone(found[0].group.regions, expensive, trial, delta_j, delta_j / before.joules)


def prove(finding: Finding, alone: Alone | None) -> Finding:
    """Return a finding as confirmed, if it is on work that one side lacks and nothing else differs."""
    if alone is None or finding.proof.confirmed or finding.cause.type != "redundancy":
        return finding
    if (finding.regions, finding.expensive) != (alone.regions, alone.expensive):
        return finding
    made = Confirmation((*finding.proof.trials, alone.trial), alone.saved_j, alone.saved_share)
    return replace(finding, proof=Proof(confirmed=True, confirmation=made))


def _is_clear(before: Energy, after: Energy, limits: Thresholds) -> bool:
    """Return whether the steps differ by more than the threshold, and the interval of that holds no zero."""
    delta_j = before.joules - after.joules
    half_j = math.hypot(before.joules - before.low, after.high - after.joules)
    return after.joules > 0 and delta_j > half_j and delta_j > limits.threshold * after.joules


def _is_left_out(sides: Comparison, row: RowComparison) -> bool:
    """Return whether a row cannot be run again and the cheap side has fewer of the same calls, or none."""
    cheap = other_side(row.expensive)
    both = [region for region in row.members if ops_of(region, cheap)]
    is_fewer = len(both) < len(row.members)
    return is_fewer and _is_unrepeatable(sides, row) and all(_is_same_call(sides, region) for region in both)


def _is_same_call(sides: Comparison, region: Region) -> bool:
    # What a collective or a compiled region launches is not known for each call, so kernels do not count.
    calls_a, calls_b = (
        [work_of(run, op, device=False, alignment=False, kernels=False) for op in ops]
        for run, ops in ((sides.a, region.a), (sides.b, region.b))
    )
    return calls_a == calls_b


def _is_unrepeatable(sides: Comparison, row: RowComparison) -> bool:
    run, kernels = sides.run(row.expensive), sides.costs[row.expensive].kernels
    ops = [op for region in row.members for op in ops_of(region, row.expensive) if kernels[op]]
    return bool(ops) and all(_cannot_run(run, run.ops[op]) for op in ops)


def _cannot_run(run: Run, op: Op) -> bool:
    if op.compiled:
        return True
    is_replayed = any(replay.energy_j is not None for replay in run.replays_of(op.id))
    # Operators of the framework itself can be tried, whatever became of their replay.
    return not is_replayed and framework_of(op.name) is None


def _most_j(sides: Comparison, rows: Sequence[RowComparison], cheap: SideName) -> float:
    """Return the most that these rows may cost, with the host's work for their operators; no end if one is not known.

    That work is as in the cheap program: in the other one the host may be busy with what is in question.
    """
    if not all(_is_known(sides, row) for row in rows) or any(_reads_device(sides, row) for row in rows):
        return math.inf
    accounts, count = sides.costs[cheap].books.accounts, len(sides.run(cheap).ops)
    host_j = sum(joules(part_energy(accounts, part)) for part in ("host", "waits")) / max(1, count)
    own_j = sum(max(_high(row.energy_a), _high(row.energy_b)) for row in rows)
    return own_j + host_j * sum(len(region.a) + len(region.b) for row in rows for region in row.members)


def _is_known(sides: Comparison, row: RowComparison) -> bool:
    """Return whether a row's energies are known: no kernel costs nothing, unless it is in compiled code."""
    energies = {"a": row.energy_a, "b": row.energy_b}
    return all(
        energies[side] is not None or not (sides.costs[side].kernels[op] or sides.run(side).ops[op].compiled)
        for side in SIDES
        for region in row.members
        for op in ops_of(region, side)
    )


def _high(energy: Energy | None) -> float:
    return 0.0 if energy is None else energy.high


def _reads_device(sides: Comparison, row: RowComparison) -> bool:
    """Return whether a row makes the host wait for a device: what that costs is not in its operators."""
    return any(
        is_read(sides.run(side).ops[op].name) and sides.run(side).ops[op].device != "cpu"
        for side in SIDES
        for region in row.members
        for op in ops_of(region, side)
    )


def _is_alike(sides: Comparison) -> bool:
    """Return whether settings, and what no region holds, are the same on both sides."""
    matched = {side: {op for region in sides.regions for op in ops_of(region, side)} for side in SIDES}
    loose = [Counter(kernel.name for kernel in run.kernels if kernel.op is None) for run in (sides.a, sides.b)]
    return (
        all(len(matched[side]) == len(sides.run(side).ops) for side in SIDES)
        and loose[0] == loose[1]
        and not differing_settings(sides.a.settings, sides.b.settings)
    )


def _is_in_place(sides: Comparison, rows: Sequence[RowComparison], expensive: SideName) -> bool:
    """Return whether the time that the expensive step takes more is lost at these rows, and not between others."""
    runs = [sides.run(side) for side in (expensive, other_side(expensive))]
    rest_s = [
        _elsewhere_s(run, {op for row in rows for region in row.members for op in ops_of(region, side)})
        for run, side in zip(runs, (expensive, other_side(expensive)), strict=True)
    ]
    if rest_s[0] is None or rest_s[1] is None:
        return False
    more_s = (runs[0].traced_s or 0.0) - (runs[1].traced_s or 0.0)
    return rest_s[0] - rest_s[1] <= _ELSEWHERE_SHARE * max(0.0, more_s)


def _elsewhere_s(run: Run, ops: set[int]) -> float | None:
    """Return the time of a traced step without operators and what follows each, up to the next one; None untraced."""
    if run.traced_s is None:
        return None
    kernels = sorted((kernel for kernel in run.kernels if kernel.op is not None), key=lambda each: each.start_s)
    ends_s = [*(kernel.start_s for kernel in kernels[1:]), run.traced_s]
    return run.traced_s - sum(
        end_s - kernel.start_s for kernel, end_s in zip(kernels, ends_s, strict=True) if kernel.op in ops
    )
