"""The proof that a trial of whole steps makes."""

from __future__ import annotations

from joulediff.model.energy import Energy, difference_j, share_of
from joulediff.model.finding import Confirmation, Proof, Trial

# How long a step is measured in a trial, and how long to wait for a quiet machine at most.
MEASURE_S, WAIT_S = 2.0, 5.0


def step_proof(trial: Trial, whole: Energy | None) -> Proof:
    """Return the proof of a trial, with its saving as a share of the whole step's energy."""
    if not trial.explains or trial.before is None or trial.after is None:
        return Proof(trial.explains, Confirmation((trial,)))
    saved_j = difference_j(trial.before, trial.after)
    return Proof(trial.explains, Confirmation((trial,), saved_j, share_of(saved_j, whole)))
