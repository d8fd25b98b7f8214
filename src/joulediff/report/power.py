"""The mean power of a group of kernels: its energy over the time it was spent in."""

from __future__ import annotations

import math

from joulediff.energy.activity import find_work
from joulediff.energy.ledger import Books
from joulediff.records import Energy
from joulediff.runs import Run


def busy_times(run: Run, books: Books) -> list[float]:
    """Return the time over which the books spread the energy of each kernel; zero where they have none.

    Kernels that ran at once share it, and on a CPU it is that of the replay: a profiler slows operators down there.
    """
    found = [0.0] * len(run.kernels)
    for account in books.accounts:
        energies = books.kernels.get(account.domain, ())
        work = find_work(run, account.domain) if account.counted and any(energies) else None
        for i, time_s in zip(work.kernels, work.times_s, strict=True) if work is not None else ():
            if energies[i] is not None:
                found[i] = time_s  # the same in all domains of a device
    return found


def power_of(energy: Energy | None, busy_s: float) -> float | None:
    """Return the mean power of an energy; None where it or its time is not known."""
    if energy is None or not busy_s > 0.0:
        return None
    power_w = energy.joules / busy_s
    return power_w if math.isfinite(power_w) else None
