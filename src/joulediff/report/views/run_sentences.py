"""The energy of a run in sentences: its parts, its split among operators, the clocks, and the costliest operators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from joulediff.energy.ledger import Books
from joulediff.model.run import Replay, Run
from joulediff.model.units import format_energy
from joulediff.report.views.amounts import format_places, round_to_sum, shorten
from joulediff.report.views.ledger import PARTS, add_accounts
from joulediff.report.views.run_rows import ALL, group_rows

LARGEST = 3
_NAME_ROOM = 48
# The other parts are named only if they are not zero.
_ALWAYS = ("operators", "unexplained")


def parts_text(books: Books) -> str | None:
    """Return the parts of the energy: `operators 91%, idle 8%, unexplained 1% of the energy`."""
    total = add_accounts(books.accounts)
    if total is None or total.unexplained is None or not total.metered.joules > 0.0:
        return None
    parts = {part: energy for part in PARTS if (energy := getattr(total, part)) is not None}
    shares = round_to_sum([100 * (energy.joules / total.metered.joules) for energy in parts.values()], total=100)
    shown = [f"{part} {share}%" for part, share in zip(parts, shares, strict=True) if share or part in _ALWAYS]
    return f"{', '.join(shown)} of the energy"


def largest_text(run: Run, books: Books, width: int) -> str | None:
    """Return the operators with the most energy, as many as fit into `width`."""
    rows = [row for row in group_rows(run, "op", books)[:LARGEST] if row.energy is not None]
    words = [
        f"{shorten(' in '.join(filter(None, (row.name, row.where))), _NAME_ROOM)}: {format_energy(row.energy.joules)}"
        for row in rows
        if row.energy is not None
    ]
    while len(words) > 1 and len(_most(words)) > width:
        words.pop()
    return _most(words) if words else None


def split_text(run: Run, books: Books) -> str | None:
    """Return how the metered energy was split among operators; None if it was not."""
    if books.split is None:
        return None
    if books.split == "attributed":
        advice = "; record with replay to measure each operator"
        return f"energy: split by time{'' if any(p.name == 'replayed' for p in run.passes) else advice}"
    counted = sorted(((a.metered.source, a.domain) for a in books.accounts if a.counted), key=lambda each: each[0])
    meters = [
        f"{', '.join(name for _, name in group)} {source}" for source, group in groupby(counted, lambda each: each[0])
    ]
    measured, distinct = _count_distinct(run.replays)
    share = books.replayed_share(range(len(run.kernels)))
    joules = "" if share is None else f", {_percent(share)} of joules"
    return f"energy: {', '.join(meters)}; {measured} of {distinct} distinct operators replayed{joules}"


def clocks_text(run: Run) -> str | None:
    """Return the clocks of the replay and of the program."""
    replayed = [r.clock_mhz for r in run.replays if r.energy_j is not None and _is_clock(r.clock_mhz)]
    domains = {r.domain for r in run.replays}
    found = {} if run.measurement is None else run.measurement.clocks_mhz
    program = [clock for name, clock in found.items() if name in domains and _is_clock(clock)]
    if not replayed or not program:
        return None
    return f"clock: replayed at {_range(replayed)}, the program ran at {_range(program)}"


def _count_distinct(replays: Iterable[Replay]) -> tuple[int, int]:
    """Return the number of distinct operators that replay measured, and of all."""
    every = list(replays)
    return len({r.op for r in every if r.energy_j is not None}), len({r.op for r in every})


def _percent(share: float) -> str:
    """Return a share as text; only the whole is `100%`."""
    return "100%" if share >= ALL else f"{format_places(min(999, math.floor(1000 * share)), 1)}%"


def _most(words: Sequence[str]) -> str:
    return f"most: {', '.join(words)}"


def _is_clock(clock_mhz: float | None) -> bool:
    return clock_mhz is not None and math.isfinite(clock_mhz) and 0.0 < clock_mhz < 1e6


def _range(clocks_mhz: Sequence[float | None]) -> str:
    known = sorted(round(clock) for clock in clocks_mhz if clock is not None)
    return f"{known[0]} MHz" if known[0] == known[-1] else f"{known[0]} to {known[-1]} MHz"
