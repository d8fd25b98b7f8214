"""A run in sentences: the parts and the split of its energy, its clocks, its timeline, and the next command."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby

from joulediff.energy.device_time import has_trace
from joulediff.energy.ledger import Books
from joulediff.model.energy import joules_of, share_of
from joulediff.model.run import Kernel, Replay, Run
from joulediff.model.units import format_share, format_si, format_time
from joulediff.report.views.run.facts import is_on_cpu
from joulediff.report.views.run.ledger import PARTS, add_accounts
from joulediff.report.views.run.rows import ALL, By, group_rows
from joulediff.report.views.run.timeline import Activity, Gap, WaitPlace, group_waits, trace_activity
from joulediff.report.views.short_texts import (
    energy_text,
    format_places,
    round_to_sum,
    short_files,
    short_kernel,
    shorten,
)
from joulediff.report.views.warnings import is_worth_repeating

LARGEST = 3
_NAME_ROOM = 48
_LAUNCHER_CHARS = 40
# The other parts are named only if they are not zero.
_ALWAYS = ("operators", "unexplained")


def parts_text(books: Books) -> str | None:
    """Return the parts of the energy: `operators 91%, idle 8%, unexplained 1% of the energy`."""
    total = add_accounts(books.accounts)
    if total is None or total.unexplained is None:
        return None
    parts = {part: energy for part in PARTS if (energy := getattr(total, part)) is not None}
    found = [share_of(joules_of(energy), total.metered) for energy in parts.values()]
    shares = [share for share in found if share is not None]
    if not shares:
        return None
    percents = round_to_sum([100 * share for share in shares], total=100)
    shown = [f"{part} {percent}%" for part, percent in zip(parts, percents, strict=True) if percent or part in _ALWAYS]
    return f"{', '.join(shown)} of the energy"


def largest_text(run: Run, books: Books, width: int) -> str | None:
    """Return the operators with the most energy, as many as fit into `width`."""
    rows = [row for row in group_rows(run, "op", books)[:LARGEST] if row.energy is not None]
    words = [
        f"{shorten(' in '.join(filter(None, (row.name, row.where))), _NAME_ROOM)}: {energy_text(row.energy)}"
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
    replayed = [r.clock_mhz for r in run.replays if r.is_measured and _is_clock(r.clock_mhz)]
    domains = {r.domain for r in run.replays}
    found = {} if run.measurement is None else run.measurement.clocks_mhz
    program = [clock for name, clock in found.items() if name in domains and _is_clock(clock)]
    if not replayed or not program:
        return None
    return f"clock: replayed at {_range(replayed)}, the program ran at {_range(program)}"


def title_text(run: Run) -> str:
    """Return the title of the table of rows."""
    if not has_trace(run):
        return "operators in one step; no trace, so no times"
    mixed = any(kernel.kind == "cpu" for kernel in run.kernels)
    what = "time in operators" if is_on_cpu(run) else "device time" + (" and time in CPU operators" if mixed else "")
    step = f" of {format_time(run.traced_s)}" if run.traced_s is not None else ""
    return f"{what} in one traced step{step}"


def timeline_texts(run: Run) -> Iterator[str]:
    """Yield sentences on the busy and idle time of each device, its largest gap, and the waits of the host."""
    for activity in trace_activity(run):
        yield _activity(activity) + _copies(run.kernels, activity.device)
        if activity.largest_gap is not None:
            yield _gap(run, activity.largest_gap)
    if waits := group_waits(run):
        yield _waits(run, waits)


def created_text(created: str) -> str:
    """Return a time in ISO 8601 as `2026-11-20 10:31 UTC`; other text stays as it is."""
    try:
        moment = datetime.fromisoformat(created)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return created


def next_command(run: Run, by: By, path: str) -> str | None:
    """Return the command that shows more of a run, or records it again; None if neither helps."""
    if not (run.ops or run.kernels) and run.host_samples and by != "line":
        return f"joulediff show {shlex.quote(path)} --by line"
    if run.ops or run.kernels:
        return f"joulediff show {shlex.quote(path)} {_next_view(run, by)}"
    if run.program and is_worth_repeating(run):
        return f"joulediff record {shlex.quote(run.program)}"
    return None


def _next_view(run: Run, by: By) -> str:
    if by == "kernel" or (by == "line" and not run.kernels):
        return "--json -"
    return "--by line" if run.ops and by != "line" else "--by kernel"


def _activity(found: Activity) -> str:
    share = format_share(found.idle_s / found.span_s) if found.span_s else "?%"
    if found.device == "cpu":  # the CPU also runs Python and dispatches operators: the rest is not idle
        return f"cpu: {format_time(found.busy_s)} in operators, {share} of the time outside of them"
    return f"{found.device} busy {format_time(found.busy_s)} of {format_time(found.span_s)}, idle {share}"


def _copies(kernels: Sequence[Kernel], device: str) -> str:
    moves = [kernel for kernel in kernels if kernel.kind in ("memcpy", "memset") and kernel.device == device]
    if not moves:
        return ""
    count = "1 copy" if len(moves) == 1 else f"{len(moves):,} copies"
    sizes = [kernel.size_bytes for kernel in moves if kernel.size_bytes is not None]
    size = f" for {format_si(sum(sizes), 'B', digits=3)}" if len(sizes) == len(moves) else ""
    return f"; {count}: {format_time(sum(kernel.duration_s for kernel in moves))}{size}"


def _gap(run: Run, gap: Gap) -> str:
    after = "the start of the step" if gap.after is None else _launcher(run, gap.after)
    before = "the end of the step" if gap.before is None else _launcher(run, gap.before)
    return f"largest gap {format_time(gap.duration_s)}: between {after} and {before}"


def _launcher(run: Run, kernel: Kernel) -> str:
    return shorten(short_kernel(kernel.name) if kernel.op is None else run.ops[kernel.op].name, _LAUNCHER_CHARS)


def _waits(run: Run, places: Sequence[WaitPlace]) -> str:
    worst, names = places[0], short_files(frame.file for frame in run.frames)
    line = "an unknown line" if worst.frame is None else f"{names[worst.frame.file]}:{worst.frame.line}"
    total = f"host waited {format_time(sum(place.wait_s for place in places))}"
    if len(places) == 1:
        return f"{total} in {worst.name}, {line}"
    return f"{total} in {len(places)} places; most in {worst.name}, {line}: {format_time(worst.wait_s)}"


def _count_distinct(replays: Iterable[Replay]) -> tuple[int, int]:
    """Return the number of distinct operators that replay measured, and of all."""
    every = list(replays)
    return len({r.op for r in every if r.is_measured}), len({r.op for r in every})


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
