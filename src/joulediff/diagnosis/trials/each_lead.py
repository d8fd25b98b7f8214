"""Trials of the leads: each alone, the strongest first, then the settings together.

The cause is the smallest set of changes that explains the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.diagnosis.draft import CAUSE_CONFIRMED, REPLACEMENT_CONFIRMED, Draft
from joulediff.diagnosis.lead import Change, Lead, make_cause
from joulediff.diagnosis.suggest import suggest_setting
from joulediff.diagnosis.trials.region_trials import RegionTrials
from joulediff.model.finding import TOGETHER, Proof
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.run import Setting

# More changes than this are not tried one by one.
MAX_CHANGES = 8


def try_each_lead(draft: Draft) -> Draft:
    """Return the draft with the first lead whose change explains the difference. An unknown cause stays unknown."""
    if draft.trials is None:
        return draft
    for lead in draft.leads:
        if lead.kind == "unknown":
            continue
        if changes := explain(draft.trials, lead.changes):
            return replace(draft, lead=lead, proof=_proof_by(draft.trials, changes))
    return draft


def try_settings_together(draft: Draft) -> Draft:
    """Return the draft with the settings that explain the difference only together."""
    settings = [lead for lead in draft.leads if lead.cause.type == "setting" and lead.changes]
    if draft.trials is None or len(settings) < 2:
        return draft
    together = explain(draft.trials, [change for lead in settings for change in lead.changes])
    chosen = [lead for lead in settings if lead.changes[0] in together]
    if not chosen:
        return draft
    proof = _proof_by(draft.trials, together)
    return replace(draft, lead=join_settings(chosen, draft.expensive), proof=proof)


def _proof_by(trials: RegionTrials, changes: Sequence[Change]) -> Proof:
    """Return the proof by changes that explain a difference.

    Settings and layouts are changed themselves; the calls of the other side are a replacement, unless they differ in
    the named cause alone. A cause is confirmed only if the outputs were compared.
    """
    is_compared = trials.try_changes(changes).difference is not None
    is_replaced = any(change.calls and not change.is_cause for change in changes)
    return CAUSE_CONFIRMED if is_compared and not is_replaced else REPLACEMENT_CONFIRMED


def explain(trials: RegionTrials, changes: Sequence[Change], *, most: int = MAX_CHANGES) -> tuple[Change, ...]:
    """Return the smallest set of changes that explains the difference; nothing if none does.

    Each is tried alone first; if none is enough, all together, and then without one after the other.
    """
    for change in changes[:most]:
        if trials.try_changes([change]).explains:
            return (change,)
    if len(changes) < 2 or not trials.try_changes(changes).explains:
        return ()
    left = list(changes)
    for change in changes[:most]:
        fewer = [each for each in left if each is not change]
        if len(fewer) > 1 and trials.try_changes(fewer).explains:
            left = fewer
    return tuple(left)


def join_settings(leads: Sequence[Lead], expensive: SideName) -> Lead:
    """Return several settings as one lead: they are the cause only together."""
    first = leads[0]
    key = TOGETHER.join(str(lead.cause.key) for lead in leads)
    values: Pair[Setting] = Pair(*(TOGETHER.join(str(lead.cause.values.of(side)) for lead in leads) for side in SIDES))
    evidence = tuple(text for lead in leads for text in lead.cause.evidence)
    cause = make_cause(first.cause.type, key, values, first.cause.locations, evidence)
    return replace(first, cause=cause, suggestion=suggest_setting(cause, expensive))
