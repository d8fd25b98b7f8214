"""Settings that differ between the programs and that no trial confirmed: listed beside the findings.

A setting is the cause of a finding only after a trial. Without one, another lead of the finding takes its place, or
the cause is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.find_leads import unknown_lead
from joulediff.diagnosis.evidence.recorded_settings import (
    config_place,
    differing_config,
    differing_settings,
    set_place,
)
from joulediff.diagnosis.evidence.settings import ENVIRONMENT
from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.merge import CONFIRMED_SHARE, identity
from joulediff.frameworks.framework import can_act, group_switches
from joulediff.model.diff import OtherDifference
from joulediff.model.finding import Finding
from joulediff.model.pair import SIDES, Pair
from joulediff.model.run import Setting


def set_aside_settings(work: Investigation) -> None:
    """Replace each setting that no trial confirmed as the cause of a draft, and note it as a difference.

    A draft that was not tried keeps a setting if trials of other drafts confirmed it for most of the energy.
    """
    for draft in work.drafts:
        settings = (lead.cause for lead in draft.leads if lead.cause.type == "setting")
        work.also_differs += (_setting(work, str(cause.key), cause.values) for cause in settings)
    proven = _proven_causes(work.drafts)
    work.drafts = [_set_aside(draft) if _is_unconfirmed(draft, proven) else draft for draft in work.drafts]


def find_also_differs(work: Investigation, findings: Sequence[Finding]) -> tuple[OtherDifference, ...]:
    """Return what differs, can act on an operator and is no finding's cause; what the user's code sets comes first."""
    named = {key for finding in findings for key in finding.cause.keys}
    found = {each.name: each for each in (*work.also_differs, *_settings(work), *_config(work))}
    left_out: set[str] = set(named)
    # A switch may have several names: a finding has one of them, and so has the list.
    for names in group_switches({*found, *named}):
        shown = sorted(found.keys() & names, key=lambda name: not _is_set(found[name]))
        left_out.update(shown if named.intersection(names) else shown[1:])
    kept = (found[name] for name in sorted(found) if name not in left_out)
    return tuple(sorted(kept, key=lambda each: (not _is_set(each), each.name.startswith(ENVIRONMENT))))


def _is_set(difference: OtherDifference) -> bool:
    return difference.location_a is not None or difference.location_b is not None


def _proven_causes(drafts: Sequence[Draft]) -> set[object]:
    """Return the causes that hold for drafts which were not tried: most of their energy is confirmed."""
    confirmed_j: dict[object, float] = defaultdict(float)
    total_j: dict[object, float] = defaultdict(float)
    for draft in drafts:
        if draft.confirmed:
            confirmed_j[identity(draft)] += draft.cost.delta_j
        if draft.confirmed or not draft.proof.trials:
            total_j[identity(draft)] += draft.cost.delta_j
    return {key for key, own_j in confirmed_j.items() if own_j >= CONFIRMED_SHARE * total_j[key]}


def _is_unconfirmed(draft: Draft, proven: set[object]) -> bool:
    if draft.lead.cause.type != "setting" or draft.confirmed or draft.subject is None:
        return False
    return bool(draft.proof.trials) or identity(draft) not in proven


def _set_aside(draft: Draft) -> Draft:
    """Return a draft with its next lead that is no setting, or with an unknown cause."""
    assert draft.subject is not None
    names = tuple(sorted(str(lead.cause.key) for lead in draft.leads if lead.cause.type == "setting"))
    others = [lead for lead in draft.leads if lead.cause.type != "setting" and not _is_same_call(lead)]
    observation = f"settings that differ, and that no trial confirmed: {', '.join(names)}"
    if others:
        lead = others[0].with_evidence(observation)
    else:
        lead = unknown_lead(draft.subject, observation, settings_differ=True)
    reason = draft.lead.cause.not_tried
    return replace(draft, lead=lead if reason is None else lead.with_evidence(reason), set_aside=names)


def _is_same_call(lead: Lead) -> bool:
    """Return whether both programs have the same call in the same code: then the call is not what differs."""
    here, there = (None if place is None else place.text for place in lead.cause.locations)
    return lead.is_by_call and here is not None and here == there


def _settings(work: Investigation) -> Iterator[OtherDifference]:
    """Yield the settings and the variables of the environment that differ, each switch once."""
    a, b = work.comparison.a, work.comparison.b
    if work.comparison.is_whole_step:  # the settings of a framework act on its operators
        shared = differing_settings(a.settings, b.settings).items()
        yield from (_setting(work, name, Pair(*values)) for name, values in shared if name.startswith(ENVIRONMENT))
        return
    ops = (*a.ops, *b.ops)
    differing = {
        name: Pair(*values) for name, values in differing_settings(a.settings, b.settings).items() if can_act(name, ops)
    }
    for names in group_switches(differing):
        # The name that a program uses is the one to report.
        key = next((name for name in names if name in a.set_places or name in b.set_places), names[0])
        yield _setting(work, key, differing[key])
    yield from (_setting(work, key, values) for key, values in differing.items() if key.startswith(ENVIRONMENT))


def _config(work: Investigation) -> Iterator[OtherDifference]:
    """Yield the entries that differ between the configurations of models, if both programs have the entry."""
    runs = Pair(work.comparison.a, work.comparison.b)
    for name, values in differing_config(*runs).items():
        if None not in values:
            yield OtherDifference(f"config.{name}", *values, *(config_place(run, name) for run in runs))


def _setting(work: Investigation, key: str, values: Pair[Setting]) -> OtherDifference:
    places = (set_place(work.comparison.run(side), key) for side in SIDES)
    return OtherDifference(key, *values, *places)
