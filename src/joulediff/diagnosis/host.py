"""Waste on the host: a device that idles because the program waits for it, again and again.

Idle time alone is no evidence: it differs from one run of a program to the next. The waits that the trace saw are, by
the line that asked for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from joulediff.diagnosis.detect import joules
from joulediff.diagnosis.sides import SIDES, Sides
from joulediff.energy.ledger import Account
from joulediff.energy.sums import add
from joulediff.findings import SideName
from joulediff.records import Energy
from joulediff.runs import Frame, Run

# Operators that hand a number to the host, which has to wait for it.
READS = ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero")
# Fewer waits more than the other side's are no habit.
LEAST_WAITS = 2
_PARTS = ("idle", "host", "waits")


@dataclass(frozen=True, slots=True)
class HostWaste:
    """Energy around the operators that one side spends more of, and the line that waits most often there."""

    expensive: SideName
    energy_a: Energy | None
    energy_b: Energy | None
    waits_a: int
    waits_b: int
    op: int
    frame: Frame | None


def part_energy(accounts: tuple[Account, ...], part: str) -> Energy | None:
    """Return one part of the books over all domains that count."""
    found = ((each.domain, getattr(each, part)) for each in accounts if each.counted)
    return add((name, energy) for name, energy in found if energy is not None)


def find_host_waste(sides: Sides, threshold: float) -> HostWaste | None:
    """Return what waiting costs on the side that waits more, where it is beyond the threshold and the intervals."""
    energies = {side: _around(sides, side) for side in SIDES}
    a, b = energies["a"], energies["b"]
    delta_j = joules(a) - joules(b)
    expensive: SideName = "a" if delta_j > 0 else "b"
    total = sides.costs[expensive].total
    if total is None or abs(delta_j) <= threshold * total.joules or _meet(a, b):
        return None
    places = {side: _waits(sides.run(side)) for side in SIDES}
    mine, others = places[expensive], places["b" if expensive == "a" else "a"]
    if sum(mine.values()) < sum(others.values()) + LEAST_WAITS:
        return None
    frame, _ = mine.most_common(1)[0]
    op = _first_op(sides.run(expensive), frame)
    counts = {side: sum(found.values()) for side, found in places.items()}
    return None if op is None else HostWaste(expensive, a, b, counts["a"], counts["b"], op, frame)


def _around(sides: Sides, side: SideName) -> Energy | None:
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
    seen |= {op.id for op in run.ops if op.name in READS and _is_on_device(run, op.id)}
    for op in seen:
        found[run.place_of(op)] += 1
    return found


def _is_on_device(run: Run, op: int) -> bool:
    return any(run.values[value].device != "cpu" for value in run.ops[op].inputs)


def _first_op(run: Run, frame: Frame | None) -> int | None:
    waiting = sorted({wait.op for wait in run.waits if wait.op is not None})
    reading = [op.id for op in run.ops if op.name in READS]
    return next((op for op in (*reading, *waiting) if run.place_of(op) == frame), None)
