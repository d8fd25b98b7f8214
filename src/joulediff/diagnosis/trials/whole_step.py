"""Trial: the whole steps of both programs, for redundant work that cannot be run alone.

Valid only if nothing else differs between the programs (`evidence.only_difference`).
"""

from __future__ import annotations

from dataclasses import replace

from joulediff.diagnosis.draft import Draft
from joulediff.model.finding import Confirmation, Proof


def prove_by_whole_steps(draft: Draft) -> Draft:
    """Return the draft, confirmed if its redundant work is the only difference."""
    only = draft.only_difference
    if only is None or draft.lead.cause.type != "redundancy":
        return draft
    made = Confirmation((*draft.proof.trials, only.trial), only.saved_j, only.saved_share)
    return replace(draft, proof=Proof(confirmed=True, confirmation=made))
