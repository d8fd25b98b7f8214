"""The proof that a trial of whole steps makes."""

from __future__ import annotations

from joulediff.model.finding import Confirmation, Proof, Trial

# How long a step is measured in a trial, and how long to wait for a quiet machine at most.
MEASURE_S, WAIT_S = 2.0, 5.0


def step_proof(trial: Trial, whole_j: float | None) -> Proof:
    """Return the proof of a trial, with its saving as a share of the whole step's energy."""
    saved_j = None
    if trial.explains and trial.before is not None and trial.after is not None:
        saved_j = trial.before.joules - trial.after.joules
    share = None
    if saved_j is not None and whole_j is not None and whole_j > 0:
        share = saved_j / whole_j
    return Proof(trial.explains, Confirmation((trial,), saved_j, share))
