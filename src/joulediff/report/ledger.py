"""The books of a run: what each meter counted, and what it was spent on.

The parts of a domain sum to what was metered. Known so far is the idle part of a GPU: its idle power × the time in
which nothing ran on it. The rest belongs to operators and is not split among them yet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.records import DomainEnergy, Energy, Source
from joulediff.report.facts import has_trace
from joulediff.report.timeline import trace_activity
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
        splits = re.fullmatch(r"gpu\d*", name) is not None
        idle_s = idle_time(run, name) if splits else None
        idle = _idle_energy(domain, idle_s) if idle_s is not None else None
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


def idle_time(run: Run, domain: str) -> float | None:
    """Return the seconds of a metered step in which nothing ran on a GPU, or None where the trace cannot tell.

    Kernels take as long under a profiler as without; the gaps between them do not, so these come from the metered step.
    """
    if run.measurement is None:
        return None
    index, step_s = int(domain.removeprefix("gpu") or 0), run.measurement.step_s
    for activity in trace_activity(run):
        if _is_device(activity.device, index):
            return max(0.0, step_s - activity.busy_s)
    # Without a kernel it either rested or was not seen: only operators recorded elsewhere tell.
    ran_elsewhere = bool(run.ops) and not any(_is_device(op.device, index) for op in run.ops)
    return step_s if has_trace(run) and ran_elsewhere else None


def _is_device(name: str, index: int) -> bool:
    kind, _, number = name.partition(":")
    return kind not in ("cpu", "meta") and (number or "0") == str(index)


def _idle_energy(domain: DomainEnergy, idle_s: float) -> Energy | None:
    idle, most_j = domain.idle, domain.energy.joules
    if idle is None:
        return None
    low_j, joules, high_j = (min(watts * idle_s, most_j) for watts in (idle.low_w, idle.power_w, idle.high_w))
    return _energy(joules, low_j, high_j, "estimated" if domain.energy.source == "estimated" else "attributed")


def _less(whole: Energy, part: Energy | None) -> Energy | None:
    if part is None:
        return None
    return _energy(whole.joules - part.joules, whole.low - part.high, whole.high - part.low, part.source)


def _sum(parts: Sequence[Energy | None]) -> Energy | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    joules, low, high = (sum(getattr(e, name) for e in known) for name in ("joules", "low", "high"))
    return _energy(joules, low, high, known[0].source)


def _energy(joules: float, low: float, high: float, source: Source) -> Energy | None:
    """Return an energy, or None for what is no number: a recording may hold anything."""
    if math.isnan(low) or math.isnan(high) or not math.isfinite(joules):
        return None
    return Energy(joules, min(low, joules), max(high, joules), source)
