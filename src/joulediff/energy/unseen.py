"""The part of a step that no recorded operator explains: kernels of the trace that the captured pass did not see.

Only kernels without an operator and without a compiled module count: those of a thread that the recording does not
reach, of a graph whose operators are not known, or of operators that only the traced step ran.
"""

from __future__ import annotations

import math
from collections import Counter

from joulediff.energy.ledger import Books
from joulediff.model.measurement import Unseen
from joulediff.model.run import Run


def find_unseen(run: Run, books: Books) -> Unseen | None:
    """Return the unseen work of a run; None if there is none, or if its operators were not captured."""
    captured = bool(run.ops) or any(p.name == "captured" and p.status in ("done", "partial") for p in run.passes)
    found = [i for i, kernel in enumerate(run.kernels) if kernel.op is None and kernel.join == "none"]
    if not captured or not found:
        return None
    times_s: Counter[str] = Counter()
    for i in found:
        times_s[run.kernels[i].name] += run.kernels[i].duration_s  # type: ignore[assignment]
    unseen_s, total_s = sum(times_s.values()), sum(kernel.duration_s for kernel in run.kernels)
    energy = books.total(found)
    metered_j = sum(account.metered.joules for account in books.accounts if account.counted)
    known = energy is not None and math.isfinite(metered_j) and metered_j > 0.0
    return Unseen(
        kernels=len(found),
        kernel_s=unseen_s,
        time_share=unseen_s / total_s if 0.0 < total_s < math.inf else None,
        energy=energy,
        share=energy.joules / metered_j if energy is not None and known else None,
        name=max(times_s, key=lambda name: (times_s[name], name)),
    )
