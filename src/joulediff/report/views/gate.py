"""The verdict of a gate in sentences: the measured ratio, the limit, and what would settle a gate that cannot tell."""

from __future__ import annotations

import math

from joulediff.model.diff import Diff, Gate
from joulediff.model.energy import Ratio
from joulediff.model.units import format_share, format_time
from joulediff.report.views.short_texts import count_text

IN_ONE_JOB = "compare the two programs themselves, in one job: joulediff diff OLD.py NEW.py"


def gate_text(gate: Gate) -> str:
    """Return the verdict with the ratio: `gate passed: B uses 1.003x the energy of A (95% CI 0.99 .. 1.02), ...`."""
    text = f"gate {gate.verdict}: {_ratio(gate.ratio)}; the limit is {_times(1 + gate.limit)}"
    if not gate.rounds:
        return text
    return f"{text} ({count_text(gate.rounds, 'pair')} of processes, {format_time(gate.spent_s)})"


def gate_advice(diff: Diff, gate: Gate) -> str | None:
    """Return why a gate cannot tell and what to do; None if it can."""
    if gate.reason is None:
        return None
    if gate.reason == "conditions":
        return f"the conditions of A and B differ: record the baseline again on this machine, or {IN_ONE_JOB}"
    if gate.reason == "not measured":
        return "the energy of a step is not known: record again, with a meter that works here (joulediff doctor)"
    if gate.reason == "disturbed":
        return _disturbed(diff)
    if gate.settles_s is not None and math.isfinite(gate.settles_s):
        option = "--settle" if gate.rounds else "--seconds"
        what = "measure both for longer" if gate.rounds else "record both for longer"
        return f"the interval holds the limit: {what}; {option} {_rounded_up(gate.settles_s)} would settle it"
    if gate.reason == "recordings":
        why = "two recordings of one program differ by as much, so longer ones do not help"
        return f"{why}: {IN_ONE_JOB}{passing_limit(gate)}"
    why = "the ratio is so close to the limit that an hour would not settle it"
    return f"{why}: choose another limit{passing_limit(gate)}"


def _disturbed(diff: Diff) -> str:
    sides = (("A", diff.a.unmet), ("B", diff.b.unmet))
    names = "; ".join(f"{letter}: {', '.join(unmet)}" for letter, unmet in sides if unmet)
    return f"a recording was disturbed ({names}): record it again on a quiet machine, or {IN_ONE_JOB}"


def passing_limit(gate: Gate) -> str:
    """Return the limit that this measurement would pass."""
    if gate.ratio is None or not math.isfinite(100 * gate.ratio.high):
        return ""
    return f" (it would pass a limit of {format_share(math.ceil(100 * (gate.ratio.high - 1)) / 100)})"


def _rounded_up(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None or not all(map(math.isfinite, (ratio.value, ratio.low, ratio.high))):
        return "it is unknown how much more energy B uses than A"
    low, high = _times(ratio.low).removesuffix("x"), _times(ratio.high).removesuffix("x")
    return f"B uses {_times(ratio.value)} the energy of A (95% CI {low} .. {high})"


def _times(ratio: float) -> str:
    """Return a ratio near one with three decimal places: a limit is a few percent."""
    return f"{ratio:.3f}x" if ratio < 10 else f"{ratio:.4g}x"
