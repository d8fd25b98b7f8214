"""The books of a run: what each meter counted, and what it was spent on.

The parts of a domain sum to what was metered. Known so far is the idle part of a GPU: its idle power × the time in
which nothing ran on it. The rest belongs to operators and is not split among them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.energy.activity import find_work, is_gpu
from joulediff.energy.attribution import idle_energy
from joulediff.energy.sums import to_energy
from joulediff.records import Energy
from joulediff.runs import Run


@dataclass(frozen=True, slots=True)
class Account:
    """One domain's joules a step. `idle` and `rest` sum to `metered`; None where they are not known."""

    domain: str
    metered: Energy
    idle: Energy | None
    rest: Energy | None
    splits: bool
    """False where no idle part is looked for: all but GPUs."""
    counted: bool
    rested: bool


def open_books(run: Run) -> tuple[Account, ...]:
    """Return the account of each domain of a run's measurement."""
    if run.measurement is None:
        return ()
    found = []
    for name, domain in run.measurement.domains.items():
        splits = is_gpu(name)
        work = find_work(run, name) if splits else None
        idle = None if work is None else idle_energy(domain.energy, work)
        rest = domain.energy if not splits else _less(domain.energy, idle)
        found.append(Account(name, domain.energy, idle, rest, splits, domain.counted, domain.rested))
    return tuple(found)


def add_accounts(accounts: Sequence[Account]) -> Account | None:
    """Return the sum of the accounts that count; None where there is none."""
    counted = [account for account in accounts if account.counted]
    metered = _sum([account.metered for account in counted])
    if metered is None:
        return None
    idle, rest = _sum([a.idle for a in counted if a.splits]), _sum([a.rest for a in counted])
    return Account("total", metered, idle, rest, any(a.splits for a in counted), counted=True, rested=False)


def _less(whole: Energy, part: Energy | None) -> Energy | None:
    if part is None:
        return None
    return to_energy(whole.joules - part.joules, whole.low - part.high, whole.high - part.low, part.source)


def _sum(parts: Sequence[Energy | None]) -> Energy | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    joules, low, high = (sum(getattr(e, name) for e in known) for name in ("joules", "low", "high"))
    return to_energy(joules, low, high, known[0].source)
