"""What a reader must know before the numbers of a run: what is missing, what failed, and what may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from joulediff.energy.activity import has_trace
from joulediff.records import Measurement
from joulediff.report.facts import is_on_cpu
from joulediff.report.timeline import trace_activity
from joulediff.runs import Pass, PassName, Run
from joulediff.units import format_time

# Chosen, not measured: what the profiler's own cost and chance may add before the ranks of operators are in doubt.
SLOW_TRACE = 1.5


def find_doubts(run: Run) -> list[str]:
    """Return a sentence on each pass that is not complete, and on each number that may mislead."""
    measured = _measured_doubts(run.measurement) if run.measurement else []
    return [*_missing_passes(run), *_incomplete_passes(run.passes), *measured, *_slow_trace(run)]


def find_notes(run: Run) -> list[str]:
    """Return the notes of a run that no pass tells already."""
    told = {each.note for each in run.passes if each.status != "done"}
    return [note for note in run.notes if note not in told]


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


def _slow_trace(run: Run) -> list[str]:
    if run.measurement is None or not run.kernels:
        return []
    if is_on_cpu(run):
        traced_s = sum(kernel.duration_s for kernel in run.kernels)
    else:
        traced_s = max((each.busy_s for each in trace_activity(run) if each.device != "cpu"), default=0.0)
    step_s = run.measurement.step_s
    if not traced_s > SLOW_TRACE * step_s > 0.0:
        return []
    times = f"{format_time(traced_s)} against {format_time(step_s)}"
    return [f"the traced step was slower than the metered one ({times}): ranks may be off"]
