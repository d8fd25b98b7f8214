"""The list of trials, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable

from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.trials.busy_wait import try_sleeping
from joulediff.diagnosis.trials.each_lead import try_each_lead, try_settings_together
from joulediff.diagnosis.trials.leave_out import try_leaving_out
from joulediff.diagnosis.trials.skip_sync import try_without_sync
from joulediff.diagnosis.trials.whole_call import try_whole_call
from joulediff.diagnosis.trials.whole_step import prove_by_whole_steps

TRIALS: tuple[Callable[[Draft], Draft], ...] = (
    try_whole_call,
    try_each_lead,
    try_settings_together,
    try_leaving_out,
    try_without_sync,
    try_sleeping,
    prove_by_whole_steps,
)


def run_trials(draft: Draft) -> Draft:
    """Return a draft after the first trial that confirms its cause, or after all of them."""
    for make_trial in TRIALS:
        if draft.confirmed:
            break
        draft = make_trial(draft)
    return draft
