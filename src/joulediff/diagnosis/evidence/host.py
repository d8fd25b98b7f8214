"""Waste around the operators: a device that idles and a host that is busy, because of waits or of many operators.

Idle time alone is no evidence: it differs from one run of a program to the next. What the trace saw is: waits, by the
line that asked for them, and how many operators there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.significance import RowComparison, joules
from joulediff.frameworks.framework import is_read, place_of
from joulediff.model.energy import Energy, add
from joulediff.model.measurement import Account
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.run import Frame, Run

# Fewer waits more than the other side's are no habit.
LEAST_WAITS = 2
# Fewer operators more than the other side's are no matter of launching them.
LEAST_OPS = 4
# A device that rests for this part of a step waits for its host.
HOST_BOUND_SHARE = 0.2
_PARTS = ("idle", "host", "waits")


@dataclass(frozen=True, slots=True)
class Around:
    """Energy around the operators: an idle device, the host's own work and its waits."""

    expensive: SideName
    energy_a: Energy | None
    energy_b: Energy | None

    @property
    def delta_j(self) -> float:
        """What the expensive side spends more."""
        return abs(joules(self.energy_a) - joules(self.energy_b))


@dataclass(frozen=True, slots=True)
class Waits:
    """The line of the expensive side that waits most often, and how often each side does."""

    count_a: int
    count_b: int
    op: int
    frame: Frame | None


def part_energy(accounts: tuple[Account, ...], part: str) -> Energy | None:
    """Return one part of the books over all domains that count."""
    found = ((each.domain, getattr(each, part)) for each in accounts if each.counted)
    return add((name, energy) for name, energy in found if energy is not None)


def find_around(sides: Comparison, threshold: float) -> Around | None:
    """Return the energy around operators, where it differs by more than this part of a step and the intervals."""
    a, b = (_around(sides, side) for side in SIDES)
    expensive: SideName = "a" if joules(a) > joules(b) else "b"
    found, total = Around(expensive, a, b), sides.costs[expensive].total
    if total is None or found.delta_j <= threshold * total.joules or _meet(a, b):
        return None
    return found


def find_waits(sides: Comparison, around: Around) -> Waits | None:
    """Return what the expensive side waits for, if it waits more often than the other."""
    places = {side: _waits(sides.run(side)) for side in SIDES}
    mine, others = places[around.expensive], places[other_side(around.expensive)]
    if sum(mine.values()) < sum(others.values()) + LEAST_WAITS:
        return None
    frame, _ = mine.most_common(1)[0]
    op = _first_op(sides.run(around.expensive), frame)
    counts = [sum(places[side].values()) for side in SIDES]
    return None if op is None else Waits(counts[0], counts[1], op, frame)


def find_launches(sides: Comparison, rows: Sequence[RowComparison], around: Around) -> int | None:
    """Return the row with most of the operators that the expensive side runs more of; None without such a row."""
    mine, other = around.expensive, other_side(around.expensive)
    more = [
        sum(len(ops_of(region, mine)) - len(ops_of(region, other)) for region in row.members)
        if any(ops_of(region, other) for region in row.members)
        else 0
        for row in rows
    ]
    total = len(sides.run(mine).ops) - len(sides.run(other).ops)
    if total < LEAST_OPS or not more or max(more) < total / 2:
        return None
    return more.index(max(more))


def launch_energy(sides: Comparison, side: SideName, fewer_ops: int, fewer_s: float) -> float:
    """Return the joules around operators that fewer of them, with less device time, save on a side.

    The host takes its time for every operator. A device that waits for it, in a step bound by the host, rests less
    where there are fewer operators, and more where these are done sooner.
    """
    run, accounts = sides.run(side), sides.costs[side].books.accounts
    if run.measurement is None or not run.ops:
        return 0.0
    share, step_s = fewer_ops / len(run.ops), run.measurement.step_s
    host_j = share * sum(joules(part_energy(accounts, part)) for part in ("host", "waits"))
    idle_j, busy_s = joules(part_energy(accounts, "idle")), sides.costs[side].time_s(range(len(run.ops))) or 0.0
    idle_s = step_s - busy_s
    if idle_s < HOST_BOUND_SHARE * step_s:
        return host_j
    return host_j + idle_j / idle_s * (share * step_s - fewer_s)


def _around(sides: Comparison, side: SideName) -> Energy | None:
    accounts = sides.costs[side].books.accounts
    return add((part, found) for part in _PARTS if (found := part_energy(accounts, part)) is not None)


def _meet(a: Energy | None, b: Energy | None) -> bool:
    if a is None or b is None:
        return True
    return a.low <= b.high and b.low <= a.high


def _waits(run: Run) -> Counter[Frame | None]:
    """Return how often each line waits for a device: for a number it reads, as the trace or the operators tell."""
    found: Counter[Frame | None] = Counter()
    seen = {wait.op for wait in run.waits if wait.op is not None}
    seen |= {op.id for op in run.ops if is_read(op.name) and _is_on_device(run, op.id)}
    for op in seen:
        found[place_of(run, op)] += 1
    return found


def _is_on_device(run: Run, op: int) -> bool:
    return any(run.values[value].device != "cpu" for value in run.ops[op].inputs)


def _first_op(run: Run, frame: Frame | None) -> int | None:
    """Return the first operator that waits in a line: of the functions that it leads to, in that which does most."""
    waiting = sorted({wait.op for wait in run.waits if wait.op is not None})
    reading = [op.id for op in run.ops if is_read(op.name)]
    found = [op for op in (*reading, *waiting) if place_of(run, op) == frame]
    functions = Counter(_function(run, op) for op in found)
    most = functions.most_common(1)[0][0] if functions else None
    return next((op for op in found if _function(run, op) == most), None)


def _function(run: Run, op: int) -> tuple[str, str] | None:
    return next(((frame.file, frame.function) for frame in reversed(run.call_path(op))), None)
