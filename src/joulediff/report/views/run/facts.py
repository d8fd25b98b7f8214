"""Facts of a run that several reports need: its passes, the time and power of operators, and their source lines."""

from __future__ import annotations

from joulediff.energy.device_time import find_work, has_trace
from joulediff.energy.ledger import Books
from joulediff.frameworks.framework import outer_path, place_of
from joulediff.model.run import Frame, Run


def has_capture(run: Run) -> bool:
    """Return whether operators were captured; a captured step may have none."""
    if run.is_plain:
        return False
    return bool(run.ops) or any(p.name == "captured" and p.status in ("done", "partial") for p in run.passes)


def is_on_cpu(run: Run) -> bool:
    """Return whether the trace has only CPU operators: each of them is recorded as one kernel."""
    return bool(run.kernels) and all(kernel.kind == "cpu" for kernel in run.kernels)


def op_times(run: Run) -> list[float | None]:
    """Return the device time of each operator, in order.

    None without a trace, and for an operator of compiled code without a kernel of its own, unless it needs none: its
    kernel belongs to another operator or to the region.
    """
    if not has_trace(run):
        return [None] * len(run.ops)
    return [
        sum((run.kernels[i].duration_s for i in kernels), 0.0)
        if kernels or (run.index.is_costed(op.id) and op.id not in run.index.fused)
        else None
        for op, kernels in zip(run.ops, run.index.kernels, strict=True)
    ]


def line_of(run: Run, op: int) -> Frame | None:
    """Return the innermost line of an operator's call path outside the framework: a library's or the user's.

    A backward operator has the line of its forward one, unless a backward function written in Python ran it.
    """
    outside = outer_path(run, op)
    return outside[-1] if outside else place_of(run, op)


def busy_times(run: Run, books: Books) -> list[float]:
    """Return the time in which each kernel used its energy; zero for a kernel without energy.

    Kernels that ran at the same time share it. On a CPU it is the time of the replay, because the profiler slows
    operators down there.
    """
    found = [0.0] * len(run.kernels)
    for account in books.accounts:
        energies = books.kernels.get(account.domain, ())
        work = find_work(run, account.domain) if account.counted and any(energies) else None
        for i, time_s in zip(work.kernels, work.times_s, strict=True) if work is not None else ():
            if energies[i] is not None:
                found[i] = time_s  # the same in all domains of a device
    return found
