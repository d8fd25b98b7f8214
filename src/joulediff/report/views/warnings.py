"""What a reader must know before the numbers of a run: what is missing, what failed, and what may be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import get_args

from joulediff.energy.device_time import has_trace, is_gpu
from joulediff.energy.ledger import Books
from joulediff.model.measurement import Account, Measurement
from joulediff.model.run import Pass, PassName, Run
from joulediff.model.units import format_time
from joulediff.report.views.amounts import format_places
from joulediff.report.views.facts import is_on_cpu
from joulediff.report.views.timeline import trace_activity

# Chosen, not measured: what the profiler's own cost and chance may add before the ranks of operators are in doubt.
SLOW_TRACE = 1.5
# With more than this of the energy replayed, the ranks are those of the replay.
REPLAYED_SHARE = 0.5
# Operators are named so many at a time.
NAMED = 2
_MOST_SHARE = 10.0


def find_doubts(run: Run, books: Books) -> list[str]:
    """Return a sentence on each pass that is not complete, and on each number that may mislead."""
    measured = _measured_doubts(run.measurement) if run.measurement else []
    passes = [*_missing_passes(run), *_incomplete_passes(run.passes)]
    return [
        *passes,
        *measured,
        *filter(None, [tell_open_books(books)]),
        *_slow_trace(run, books),
        *_marked_replays(run),
    ]


def find_notes(run: Run, books: Books) -> list[str]:
    """Return the notes of a run that no pass tells already, and on operators that were not replayed as they ran."""
    told = {each.note for each in run.passes if each.status != "done"}
    notes = [note for note in run.notes if note not in told]
    return [*notes, *(_unmeasured_replays(run) if books.split == "replayed" else []), *_drawn_replays(run)]


def is_trustworthy(run: Run, books: Books) -> bool:
    """Return whether the energy was measured, nothing spoke against it, and its books are closed as far as known."""
    return run.measurement is not None and run.measurement.trustworthy and books.is_closed is not False


def tell_open_books(books: Books) -> str | None:
    """Return a sentence on books that leave too much unexplained; None where they are closed, or not known."""
    share = books.unexplained_share
    if share is None or books.is_closed:
        return None
    left = {a: abs(a.unexplained.joules) for a in books.accounts if a.counted and a.unexplained is not None}
    worst = max(left, key=lambda account: left[account])
    percent = f"{format_places(round(1000 * share), 1)}%" if share < _MOST_SHARE else "more than all"
    return f"{percent} of the energy is unexplained: {_why_open(worst)}"


def is_worth_repeating(run: Run) -> bool:
    """Return whether another recording may hold more: a pass that was skipped for a reason is skipped again."""
    return bool(_missing(run)) or any(each.status in ("failed", "partial") for each in run.passes)


def _missing(run: Run) -> list[PassName]:
    there = {each.name for each in run.passes}
    found: dict[PassName, bool] = {
        "metered": run.measurement is not None,
        "traced": has_trace(run),
        "captured": bool(run.ops),
        # Not missed: older recordings have no such pass.
        "replayed": True,
    }
    names: Sequence[PassName] = get_args(PassName)
    return [name for name in names if name not in there and not found[name]]


def _missing_passes(run: Run) -> list[str]:
    missing = _missing(run)
    return [f"{', '.join(missing)}: missing; the recording ended early"] if missing else []


def _incomplete_passes(passes: Sequence[Pass]) -> list[str]:
    """Return a sentence for each reason: passes that share it share the sentence."""
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for each in passes:
        if each.status != "done":
            reasons.setdefault((each.status, each.note), []).append(each.name)
    return [
        f"{' and '.join(names)} {'pass' if len(names) == 1 else 'passes'} {status}{f': {note}' if note else ''}"
        for (status, note), names in reasons.items()
    ]


def _measured_doubts(found: Measurement) -> list[str]:
    failed = [c for c in found.conditions if not c.ok]
    # The measurement's own warnings hold most of them already, in these words.
    unsaid = [c for c in failed if (c.advice or c.value) not in found.warnings]
    resting = {name for name, domain in found.domains.items() if domain.rested}
    return [*found.warnings, *(c.advice or f"{c.name}: {c.value}" for c in unsaid if c.domain not in resting)]


def _slow_trace(run: Run, books: Books) -> list[str]:
    if run.measurement is None or not run.kernels:
        return []
    if is_on_cpu(run):
        if (books.replayed_share(range(len(run.kernels))) or 0.0) > REPLAYED_SHARE:
            return []
        traced_s = sum(kernel.duration_s for kernel in run.kernels)
    else:
        traced_s = max((each.busy_s for each in trace_activity(run) if each.device != "cpu"), default=0.0)
    step_s = run.measurement.step_s
    if not traced_s > SLOW_TRACE * step_s > 0.0:
        return []
    times = f"{format_time(traced_s)} against {format_time(step_s)}"
    return [f"the traced step was slower than the metered one ({times}): ranks may be off"]


def _why_open(account: Account) -> str:
    if account.host is None and not is_gpu(account.domain):
        return "the CPU time of the step is not known, so neither is what the host took between operators"
    if account.unexplained is not None and account.unexplained.joules < 0.0:
        return f"the parts of {account.domain} sum to more than was metered"
    return f"the parts of {account.domain} sum to less than was metered"


def _marked_replays(run: Run) -> list[str]:
    marked = [replay for replay in run.replays if replay.energy_j is not None and replay.note]
    pairs = [(note, replay.op) for replay in marked for note in (replay.note or "").split("; ")]
    return [f"{_kinds(run, ops)} replayed, but doubtful: {note}" for note, ops in _fold(pairs)]


def _unmeasured_replays(run: Run) -> list[str]:
    measured = {replay.op for replay in run.replays if replay.energy_j is not None}
    pairs = [(r.note or "no reason is known", r.op) for r in run.replays if r.op not in measured]
    return [f"{_kinds(run, ops)} not replayed: {note}" for note, ops in _fold(pairs)]


def _drawn_replays(run: Run) -> list[str]:
    drawn = [r.op for r in run.replays if r.energy_j is not None and r.inputs == "drawn"]
    return [f"{_kinds(run, drawn)} replayed with drawn values instead of real ones"] if drawn else []


def _fold(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    """Return notes with the operators they are on, the first of those that differ in numbers alone."""
    found: dict[str, tuple[str, list[int]]] = {}
    for note, op in pairs:
        found.setdefault(re.sub(r"\d+", "", note), (note, []))[1].append(op)
    return sorted(found.values(), key=lambda each: -len(set(each[1])))


def _kinds(run: Run, ops: Iterable[int]) -> str:
    """Return how many kinds of operators these are, and the names of the first."""
    numbers = list(dict.fromkeys(ops))
    names = list(dict.fromkeys(run.ops[op].name for op in numbers))
    more = f", {len(names) - NAMED} more" if len(names) > NAMED else ""
    what = "1 kind of operator" if len(numbers) == 1 else f"{len(numbers)} kinds of operators"
    return f"{what} ({', '.join(names[:NAMED])}{more})"
