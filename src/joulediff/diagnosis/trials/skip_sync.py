"""Trial: the whole step without a wait: a line gets the numbers that it read in an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.trials.whole_step import MEASURE_S, WAIT_S, step_proof, step_trial
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Trial
from joulediff.model.pair import SideName, other_side
from joulediff.model.place import Place


def try_without_sync(draft: Draft) -> Draft:
    """Return the draft after a trial of its wait, if it is about one."""
    if draft.lead.cause.type != "host":
        return draft
    place = draft.lead.cause.locations.of(draft.expensive)
    trial = measure_without_sync(draft.comparison, draft.expensive, place, draft.live, draft.limits)
    if trial is None:
        return draft
    return replace(draft, proof=step_proof(trial, draft.comparison.costs[draft.expensive].total))


def measure_without_sync(
    comparison: Comparison,
    expensive: SideName,
    place: Place | None,
    live: Mapping[SideName, LiveProgram],
    limits: Thresholds,
) -> Trial | None:
    """Return the trial of a step that does not wait in a line; None if it cannot be run again."""
    if expensive not in live or place is None:
        return None
    change = f"no wait in {place.file}:{place.line}"
    before, cheap = (_measure_now(comparison, side, live) for side in (expensive, other_side(expensive)))
    try:
        found = live[expensive].measure_without_sync(place.file, place.line)
    except JoulediffError as error:
        return Trial(change, before, None, cheap, note=error.what, of_step=True)
    return step_trial(change, found, before, cheap, limits)


def _measure_now(comparison: Comparison, side: SideName, live: Mapping[SideName, LiveProgram]) -> Energy | None:
    """Return the energy of a step as it is now: a profiler that ran before may have left the host slower."""
    if side in live:
        with suppress(JoulediffError):
            return live[side].measure(seconds=MEASURE_S, wait_s=WAIT_S).energy
    return comparison.costs[side].total
