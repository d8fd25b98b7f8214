"""Trials of whole steps: their proof, and the trial of redundant work that cannot be run alone.

The latter compares the steps of both programs. It is valid only if nothing else differs between them
(`evidence.only_difference`).
"""

from __future__ import annotations

from dataclasses import replace

from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.trials.region_trials import NEAR_SHARE, NOTES, Outcome
from joulediff.frameworks.jobs import VariantCost
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy, difference_j, is_at_most, share_of
from joulediff.model.finding import Confirmation, Proof, Trial

# How long a step is measured in a trial, and how long to wait for a quiet machine at most.
MEASURE_S, WAIT_S = 2.0, 5.0


NOT_COMPARED = "the outputs could not be compared"


def step_trial(
    change: str, found: VariantCost, before: Energy | None, cheap: Energy | None, limits: Thresholds
) -> Trial:
    """Return the trial of a whole step. It explains nothing if the outputs were not compared, or differ."""
    outcome: Outcome = "no less energy"
    if found.difference is not None and found.difference > limits.difference:
        outcome = "outputs differ"
    elif is_at_most(found.after, 1 - limits.threshold / 2, before):
        outcome = "explains" if is_at_most(found.after, 1 + NEAR_SHARE, cheap) else "not near"
    return Trial(
        change,
        before,
        found.after,
        cheap,
        difference=found.difference,
        explains=outcome == "explains" and found.difference is not None,
        note=NOT_COMPARED if found.difference is None else NOTES.get(outcome),
        of_step=True,
    )


def step_proof(trial: Trial, whole: Energy | None) -> Proof:
    """Return the proof of a trial, with its saving as a share of the whole step's energy."""
    if not trial.explains or trial.before is None or trial.after is None:
        return Proof("observed", Confirmation((trial,)))
    saved_j = difference_j(trial.before, trial.after)
    return Proof("cause confirmed", Confirmation((trial,), saved_j, share_of(saved_j, whole)))


def prove_by_whole_steps(draft: Draft) -> Draft:
    """Return the draft, confirmed if its redundant work is the only difference."""
    only = draft.only_difference
    if only is None or draft.lead.cause.type != "redundancy":
        return draft
    made = Confirmation((*draft.proof.trials, only.trial), only.saved_j, only.saved_share)
    return replace(draft, proof=Proof("replacement confirmed", made))
