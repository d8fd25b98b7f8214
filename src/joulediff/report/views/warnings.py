"""Warnings and notes on a run: each says what limits the result, and what to do about it if something helps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import get_args

from joulediff.energy.device_time import has_trace, is_gpu
from joulediff.energy.ledger import Books, exceeds_meter
from joulediff.energy.unseen import find_unseen
from joulediff.model.energy import joules_of
from joulediff.model.measurement import Account, Measurement, Unseen
from joulediff.model.run import Pass, PassName, Run
from joulediff.model.units import format_share, format_time
from joulediff.report.views.run.facts import is_on_cpu
from joulediff.report.views.run.timeline import trace_activity
from joulediff.report.views.short_texts import count_text, format_places

# Chosen, not measured: a trace that is slower than this may change the order of operators.
SLOW_TRACE = 1.5
# With more than this share of the energy replayed, the order of operators is that of the replay.
REPLAYED_SHARE = 0.5
NOT_TRUSTWORTHY = "Not trustworthy: the warnings above say why."
# Less of the energy without an operator changes no conclusion.
UNSEEN_SHARE = 0.01
_NAME_CHARS = 60
# At most this many operators are named.
NAMED = 2
_MOST_SHARE = 10.0
_STATUS = {"failed": "failed", "partial": "is incomplete", "skipped": "was skipped"}


def find_warnings(run: Run, books: Books) -> list[str]:
    """Return a sentence for each incomplete pass, and for each number that may be wrong."""
    measured = _measured_warnings(run.measurement) if run.measurement else []
    unexplained = books_text(books)
    return [
        *_missing_passes(run),
        *_incomplete_passes(_expected_passes(run)),
        *measured,
        *([] if unexplained is None else [unexplained]),
        *unseen_texts(find_unseen(run, books)),
        *_slow_trace(run, books),
        *_doubtful_replays(run),
    ]


def find_notes(run: Run, books: Books) -> list[str]:
    """Return the notes of a run, and a sentence for operators that were not replayed with their own inputs."""
    shown = {each.note for each in _expected_passes(run) if each.status != "done"}
    notes = [note for note in run.notes if note not in shown]
    return [*notes, *(_unmeasured_replays(run) if books.split == "replayed" else []), *_drawn_replays(run)]


def is_trustworthy(run: Run, books: Books) -> bool:
    """Return whether the measurement is trustworthy and its parts sum to it, as far as they are known."""
    is_sound = books.is_closed is not False and not books.exceeds_meter
    return run.measurement is not None and run.measurement.trustworthy and is_sound


def exceeding_text(accounts: Iterable[Account]) -> str | None:
    """Return a sentence if the parts of a counted domain sum to more than the meter and the errors of both allow."""
    found = [account for account in accounts if account.counted and exceeds_meter(account)]
    if not found:
        return None
    worst = min(found, key=lambda account: joules_of(account.unexplained))
    share = 1.0 - joules_of(worst.unexplained) / worst.metered.joules if worst.metered.joules > 0.0 else math.inf
    percent = f"{100 * share:.0f}%" if share < _MOST_SHARE else "more than 1,000%"
    return (
        f"the parts of {worst.domain} sum to {percent} of its metered energy, more than the errors of both explain: "
        "operators cost less in the program than alone, so take the energy of each as an upper limit"
    )


def books_text(books: Books) -> str | None:
    """Return a sentence if the parts do not sum to the metered energy; None otherwise, or if that is unknown."""
    return exceeding_text(books.accounts) or unexplained_text(books)


def unexplained_text(books: Books) -> str | None:
    """Return a sentence if too much of the energy is unexplained; None otherwise, or if that is unknown."""
    share, worst = books.unexplained_share, books.least_explained
    if share is None or worst is None or books.is_closed:
        return None
    percent = f"{format_places(round(1000 * share), 1)}%" if share < _MOST_SHARE else "more than 1,000%"
    return f"{percent} of the energy is unexplained: {_why_open(worst)}"


def unseen_texts(unseen: Unseen | None) -> list[str]:
    """Return a sentence if much of the energy, or else of the time, belongs to no recorded operator."""
    if unseen is None or not unseen.weight >= UNSEEN_SHARE:
        return []
    what = "energy" if unseen.share is not None else "time of kernels"
    where = f"{count_text(unseen.kernels, 'kernel')}, most of it {unseen.name[:_NAME_CHARS]}"
    return [f"{format_share(unseen.weight)} of the {what} belongs to no recorded operator ({where}): the notes say why"]


def is_worth_repeating(run: Run) -> bool:
    """Return whether recording again may complete the run: a skipped pass would be skipped again."""
    return bool(_missing(run)) or any(each.status in ("failed", "partial") for each in run.passes)


def _missing(run: Run) -> list[PassName]:
    there = {each.name for each in run.passes}
    found: dict[PassName, bool] = {
        "metered": run.measurement is not None,
        "traced": has_trace(run),
        "captured": bool(run.ops),
        # Older recordings do not have these passes.
        "sampled": True,
        "replayed": True,
    }
    names: Sequence[PassName] = get_args(PassName)
    return [name for name in names if name not in there and not found[name]]


def _missing_passes(run: Run) -> list[str]:
    missing = _missing(run)
    if not missing:
        return []
    verb = "is" if len(missing) == 1 else "are"
    return [f"{_passes(missing)} {verb} missing: the recording ended early; record again"]


def _expected_passes(run: Run) -> list[Pass]:
    """Return the passes of a run, without the trace of a program that has no framework to trace."""
    return [each for each in run.passes if not (run.is_plain and each.name == "traced")]


def _incomplete_passes(passes: Sequence[Pass]) -> list[str]:
    """Return a sentence for each reason: passes with the same reason share one."""
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for each in passes:
        if each.status != "done":
            reasons.setdefault((each.status, each.note), []).append(each.name)
    return [
        f"{_passes(names)} {_verb(status, len(names))}{f': {note}' if note else ''}"
        for (status, note), names in reasons.items()
    ]


def _passes(names: Sequence[str]) -> str:
    return f"the {' and '.join(names)} {'pass' if len(names) == 1 else 'passes'}"


def _verb(status: str, count: int) -> str:
    verb = _STATUS.get(status, status)
    return verb if count == 1 else verb.replace("is ", "are ").replace("was ", "were ")


def _measured_warnings(found: Measurement) -> list[str]:
    failed = [c for c in found.conditions if not c.ok]
    # The warnings of a measurement repeat the advice of most conditions.
    others = [c for c in failed if (c.advice or c.value) not in found.warnings]
    resting = {name for name, domain in found.domains.items() if domain.rested}
    return [*found.warnings, *(c.advice or f"{c.name}: {c.value}" for c in others if c.domain not in resting)]


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
    times = f"{format_time(traced_s)} instead of {format_time(step_s)}"
    return [f"the profiler slowed the traced step down ({times}): the order of the rows may be wrong"]


def _why_open(account: Account) -> str:
    if account.host is None and not is_gpu(account.domain):
        return "the CPU time of the step is unknown, so the energy of the host is unknown; record again"
    how = "more" if joules_of(account.unexplained) < 0.0 else "less"
    return f"the parts of {account.domain} sum to {how} than was metered; record again on a quiet machine"


def _doubtful_replays(run: Run) -> list[str]:
    marked = [replay for replay in run.replays if replay.is_measured and replay.note]
    pairs = [(note, replay.op) for replay in marked for note in (replay.note or "").split("; ")]
    return [f"the replayed energy of {_distinct(run, ops)} may be wrong: {note}" for note, ops in _fold(pairs)]


def _unmeasured_replays(run: Run) -> list[str]:
    measured = {replay.op for replay in run.replays if replay.is_measured}
    pairs = [(r.note or "the reason is unknown", r.op) for r in run.replays if r.op not in measured]
    return [f"not replayed: {_distinct(run, ops)}: {note}" for note, ops in _fold(pairs)]


def _drawn_replays(run: Run) -> list[str]:
    drawn = [r.op for r in run.replays if r.is_measured and r.inputs == "drawn"]
    return [f"replayed with random inputs instead of the recorded ones: {_distinct(run, drawn)}"] if drawn else []


def _fold(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    """Return each note once, with its operators; notes that differ only in numbers are merged."""
    found: dict[str, tuple[str, list[int]]] = {}
    for note, op in pairs:
        found.setdefault(re.sub(r"\d+", "", note), (note, []))[1].append(op)
    return sorted(found.values(), key=lambda each: -len(set(each[1])))


def _distinct(run: Run, ops: Iterable[int]) -> str:
    """Return the number of distinct operators, and the first names: `2 distinct operators (aten::pow, aten::tanh)`."""
    numbers = list(dict.fromkeys(ops))
    names = list(dict.fromkeys(run.ops[op].name for op in numbers))
    more = f", {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{count_text(len(numbers), 'distinct operator')} ({', '.join(names[:NAMED])}{more})"
