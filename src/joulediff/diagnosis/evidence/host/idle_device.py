"""Evidence: energy around the operators, of an idle device and a busy host, because of waits or of many operators.

Idle time alone is no evidence: it differs between runs of one program. Waits in the trace, with the line that asked for
them, and the number of operators are evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, ops_of, to_place
from joulediff.diagnosis.evidence.calls.source_calls import call_behind
from joulediff.diagnosis.lead import Lead, make_cause
from joulediff.diagnosis.significance import RowComparison
from joulediff.diagnosis.suggest import suggest_no_wait
from joulediff.frameworks.framework import is_read, place_of
from joulediff.model.energy import Energy, add, costlier_side, difference_j, is_more_than, joules_of, overlap
from joulediff.model.measurement import Account
from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from
from joulediff.model.run import Frame, Run, Setting

# Fewer extra waits than this may be an accident of one step.
LEAST_WAITS = 2
# Fewer extra operators than this do not show in the host's energy.
LEAST_OPS = 4
# A device that is idle for this share of a step waits for its host.
HOST_BOUND_SHARE = 0.2
_PARTS = ("idle", "host", "waits")


@dataclass(frozen=True, slots=True)
class Around:
    """Energy around the operators: an idle device, the host's own work and its waits."""

    expensive: SideName
    energy_a: Energy | None
    energy_b: Energy | None

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(self.energy_a, self.energy_b)

    @property
    def delta_j(self) -> float:
        """The extra energy of the expensive side."""
        return abs(difference_j(*self.energies))


@dataclass(frozen=True, slots=True)
class Waits:
    """The line of the expensive side that waits most often, and the number of waits of each side."""

    count_a: int
    count_b: int
    op: int
    frame: Frame | None


def part_energy(accounts: tuple[Account, ...], part: str) -> Energy | None:
    """Return one part of the ledger over all domains that are counted."""
    found = ((each.domain, getattr(each, part)) for each in accounts if each.counted)
    return add((name, energy) for name, energy in found if energy is not None)


def find_around(comparison: Comparison, threshold: float) -> Around | None:
    """Return the energy around operators, if it differs by more than this share of a step and the intervals."""
    a, b = (_around(comparison, side) for side in SIDES)
    expensive = costlier_side(a, b)
    found, total = Around(expensive, a, b), comparison.costs[expensive].total
    return found if is_more_than(found.delta_j, threshold, total) and not overlap(a, b) else None


def find_waits(comparison: Comparison, around: Around) -> Waits | None:
    """Return the waits of the expensive side, if it waits more often than the other."""
    places = {side: _waits(comparison.run(side)) for side in SIDES}
    mine, others = places[around.expensive], places[other_side(around.expensive)]
    if sum(mine.values()) < sum(others.values()) + LEAST_WAITS:
        return None
    frame, _ = mine.most_common(1)[0]
    op = _first_op(comparison.run(around.expensive), frame)
    counts = [sum(places[side].values()) for side in SIDES]
    return None if op is None else Waits(counts[0], counts[1], op, frame)


def wait_lead(comparison: Comparison, around: Around, waits: Waits) -> Lead:
    """Return the line that waits as a lead. Its trial is one of the whole step, so it has no change of a region."""
    side = around.expensive
    run = comparison.run(side)
    key = call_behind(run, waits.op, waits.frame)
    values: Pair[Setting] = Pair(waits.count_a, waits.count_b)
    evidence = f"A waits {waits.count_a} times a step for a device, B {waits.count_b} times"
    locations = pair_from(side, to_place(run, waits.frame), None)
    cause = make_cause("host", key, values, locations, (evidence,))
    return Lead("host", cause, (), suggest_no_wait(cause, side))


def find_launches(comparison: Comparison, rows: Sequence[RowComparison], around: Around) -> int | None:
    """Return the row with most of the expensive side's extra operators; None without such a row."""
    mine, other = around.expensive, other_side(around.expensive)
    more = [
        sum(len(ops_of(region, mine)) - len(ops_of(region, other)) for region in row.members)
        if any(ops_of(region, other) for region in row.members)
        else 0
        for row in rows
    ]
    total = len(comparison.run(mine).ops) - len(comparison.run(other).ops)
    if total < LEAST_OPS or not more or max(more) < total / 2:
        return None
    return more.index(max(more))


def launch_energy(comparison: Comparison, side: SideName, fewer_ops: int, fewer_s: float) -> float:
    """Return the energy around operators that a side saves with fewer operators and less device time.

    The host needs time for every operator. In a step bound by the host, the device is idle for less time if there are
    fewer operators, and for more time if they finish sooner.
    """
    run, accounts = comparison.run(side), comparison.costs[side].books.accounts
    if run.measurement is None or not run.ops:
        return 0.0
    share, step_s = fewer_ops / len(run.ops), run.measurement.step_s
    host_j = share * sum(joules_of(part_energy(accounts, part)) for part in ("host", "waits"))
    idle_j, busy_s = joules_of(part_energy(accounts, "idle")), comparison.costs[side].time_s(range(len(run.ops))) or 0.0
    idle_s = step_s - busy_s
    if idle_s < HOST_BOUND_SHARE * step_s:
        return host_j
    return host_j + idle_j / idle_s * (share * step_s - fewer_s)


def _around(comparison: Comparison, side: SideName) -> Energy | None:
    accounts = comparison.costs[side].books.accounts
    return add((part, found) for part in _PARTS if (found := part_energy(accounts, part)) is not None)


def _waits(run: Run) -> Counter[Frame | None]:
    """Return the number of waits of each line, from the trace and from operators that read a number."""
    found: Counter[Frame | None] = Counter()
    seen = {wait.op for wait in run.waits if wait.op is not None}
    seen |= {op.id for op in run.ops if is_read(op.name) and _is_on_device(run, op.id)}
    for op in seen:
        found[place_of(run, op)] += 1
    return found


def _is_on_device(run: Run, op: int) -> bool:
    return any(run.values[value].device != "cpu" for value in run.ops[op].inputs)


def _first_op(run: Run, frame: Frame | None) -> int | None:
    """Return the first operator that waits below a line, in the function with the most waits."""
    waiting = sorted({wait.op for wait in run.waits if wait.op is not None})
    reading = [op.id for op in run.ops if is_read(op.name)]
    found = [op for op in (*reading, *waiting) if place_of(run, op) == frame]
    functions = Counter(_function(run, op) for op in found)
    most = functions.most_common(1)[0][0] if functions else None
    return next((op for op in found if _function(run, op) == most), None)


def _function(run: Run, op: int) -> tuple[str, str] | None:
    return next(((frame.file, frame.function) for frame in reversed(run.call_path(op))), None)
