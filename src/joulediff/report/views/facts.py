"""What several reports ask of a run: which passes there are, what an operator cost, and the line it came from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from joulediff.energy.device_time import find_work, has_trace
from joulediff.energy.ledger import Books
from joulediff.frameworks.framework import backward_path, library_packages, place_of
from joulediff.model.energy import Energy
from joulediff.model.run import Frame, Run
from joulediff.pysource.call_path import STANDARD_LIBRARY


def has_capture(run: Run) -> bool:
    """Return whether operators were captured: a step may have none."""
    return bool(run.ops) or any(p.name == "captured" and p.status in ("done", "partial") for p in run.passes)


def is_on_cpu(run: Run) -> bool:
    """Return whether all that the trace saw are operators on the CPU: there is one of them for each kernel."""
    return bool(run.kernels) and all(kernel.kind == "cpu" for kernel in run.kernels)


def op_times(run: Run) -> list[float | None]:
    """Return the device time of each operator, in order.

    None without a trace, and for an operator that ran inside a compiled region: its kernels are the region's.
    """
    if not has_trace(run):
        return [None] * len(run.ops)
    return [
        None if op.compiled and not kernels else sum((run.kernels[i].duration_s for i in kernels), 0.0)
        for op, kernels in zip(run.ops, run.index.kernels, strict=True)
    ]


def line_of(run: Run, op: int) -> Frame | None:
    """Return the innermost line outside of the framework on the way to an operator: a library's, or the user's own.

    A backward operator has the line of its forward one, unless a backward written in Python ran it.
    """
    forward = run.ops[op].forward
    path = run.call_path(op if forward is None else forward) or run.call_path(op)
    inside = {*library_packages(), STANDARD_LIBRARY}
    outside = [frame for frame in (*path, *backward_path(run, op)) if frame.owner not in inside]
    return outside[-1] if outside else place_of(run, op)


def short_files(files: Iterable[str]) -> dict[str, str]:
    """Return the name of each file as people say it: without its folders, unless two would be alike."""
    files = set(files)
    names = Counter(PurePath(file).name for file in files)
    return {file: "/".join(PurePath(file).parts[-1 if names[PurePath(file).name] == 1 else -2 :]) for file in files}


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
