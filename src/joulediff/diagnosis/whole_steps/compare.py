"""Compare two steps as a whole: their energy, their functions and their outputs.

Outputs that are not known to agree are said to be unknown, never taken for equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.whole_steps.function_rows import compare_functions
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.diff import Thresholds
from joulediff.model.outputs import output_distance
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.model.units import format_share

# A smaller difference of outputs is rounding.
_EQUAL_SHARE = 1e-6


def are_whole_steps(a: Run, b: Run) -> bool:
    """Return whether two measured steps can only be compared as a whole: one of them has no operators."""
    return not (a.ops and b.ops) and a.measurement is not None and b.measurement is not None


def compare_whole_steps(
    a: Run,
    b: Run,
    *,
    tolerance: float,
    limits: Thresholds,
    live: Mapping[SideName, LiveProgram],
    listener: ProgressListener,
) -> Investigation:
    """Return the investigation of two steps, with a row for each function."""
    listener.stage("comparing the functions", None)
    distance = output_distance(a, b)
    agree = distance is not None and distance <= limits.difference
    comparison = Comparison(a, b, (), tolerance, outputs_agree=agree)
    work = Investigation(comparison, (), limits, live, listener)
    work.functions = compare_functions(a, b, Pair(*(comparison.costs[side] for side in SIDES)))
    work.notes += _missing_notes(Pair(a, b))
    work.notes.append(_output_note(distance, agree=agree))
    return work


def _missing_notes(runs: Pair[Run]) -> list[str]:
    """Return why a framework's operators, or the samples of the host, are missing on a side."""
    found = []
    for letter, run in zip("AB", runs, strict=True):
        for name, has in (("captured", bool(run.ops)), ("sampled", bool(run.host_samples))):
            missing = next((each for each in run.passes if each.name == name and each.status != "done"), None)
            if missing is not None and not has:
                found.append(f"{letter}: its {name} pass was {missing.status} ({missing.note or 'no reason given'})")
    return found


def _output_note(distance: float | None, *, agree: bool) -> str:
    if distance is None:
        return "it is not known whether A and B return the same: what they return cannot be compared"
    if not agree:
        return f"A and B return different values, {format_share(min(distance, 1.0))} apart: compare what they compute"
    within = f" within {format_share(distance)}" if distance > _EQUAL_SHARE else ""
    return f"A and B return equal values{within}"


def judge_by_outputs(work: Investigation) -> None:
    """Make a trade-off of each finding that no trial compared, if the outputs of the two steps differ."""
    distance = output_distance(work.comparison.a, work.comparison.b)
    if distance is not None:
        work.drafts = [_judge(draft, distance, work.limits) for draft in work.drafts]


def _judge(draft: Draft, distance: float, limits: Thresholds) -> Draft:
    if draft.cost.difference is not None or draft.confirmed:
        return draft
    verdict = draft.verdict if distance <= limits.difference else "tradeoff"
    return replace(draft, verdict=verdict, cost=replace(draft.cost, difference=distance))
