"""Evidence: a setting of the framework differs between the two sides where an operator runs, or in the environment.

Settings that cannot act on an operator of the region, such as those of a compiler on eager ones, are left out.
An environment variable is not tried: only a new process could change it.
"""

from __future__ import annotations

from collections.abc import Mapping

from joulediff.diagnosis.comparison import ops_of
from joulediff.diagnosis.evidence.recorded_settings import differing_settings, set_place
from joulediff.diagnosis.lead import Change, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_setting
from joulediff.frameworks.framework import can_act, group_switches, settings_at
from joulediff.model.finding import NOT_TRIED
from joulediff.model.pair import SIDES, Pair, SideName
from joulediff.model.run import Op, Setting

ENVIRONMENT = "env."


def find_settings(subject: Subject) -> list[Lead]:
    """Return a lead for each switch of the framework that differs at the costliest operators."""
    if subject.relation == "one_sided":
        return []
    differing, leads = _differing(subject), []
    for names in _acting_switches(subject, differing):
        set_here = subject.comparison.run(subject.expensive).set_places
        # A switch may have several names; the program's own is the one to report.
        key = next((name for name in names if name in set_here), names[0])
        leads.append(_lead(subject, key, differing[key], name=key))
    return leads


def find_environment(subject: Subject) -> list[Lead]:
    """Return a lead for each environment variable that differs."""
    if subject.relation == "one_sided":
        return []
    ops = _ops_of(subject)
    differing = {key: values for key, values in _differing(subject).items() if _is_variable(key) and can_act(key, ops)}
    why = "the environment cannot be changed at run time"
    return [
        _lead(subject, key, values, name=key.removeprefix(ENVIRONMENT), not_tried=why)
        for key, values in differing.items()
    ]


def is_same_setup(subject: Subject) -> bool:
    """Return whether no setting and no variable of the environment that can act on the region differs."""
    differing, ops = _differing(subject), _ops_of(subject)
    variables = [key for key in differing if _is_variable(key) and can_act(key, ops)]
    return not variables and not _acting_switches(subject, differing)


def _acting_switches(subject: Subject, differing: Mapping[str, object]) -> list[list[str]]:
    """Return the names of each switch that differs, the best known first, without those that cannot act.

    They are grouped before: which name is the best depends on all names that differ.
    """
    ops = _ops_of(subject)
    found = ([name for name in names if can_act(name, ops)] for names in group_switches(differing))
    return [names for names in found if names]


def _is_variable(key: str) -> bool:
    return key.startswith(ENVIRONMENT)


def _ops_of(subject: Subject) -> list[Op]:
    """Return the operators of the region on both sides: a setting may have chosen either of them."""
    return [subject.comparison.run(side).ops[op] for side in SIDES for op in ops_of(subject.region, side)]


def _differing(subject: Subject) -> dict[str, Pair[Setting]]:
    """Return the settings that differ where the costliest operators run."""
    at_a, at_b = (_settings_on(subject, side) for side in SIDES)
    return {name: Pair(*values) for name, values in differing_settings(at_a, at_b).items()}


def _lead(subject: Subject, key: str, values: Pair[Setting], *, name: str, not_tried: str | None = None) -> Lead:
    """Return the lead of one setting; `not_tried` is the reason if it cannot be changed while the program runs."""
    locations = Pair(*(set_place(subject.comparison.run(side), key) or subject.place(side) for side in SIDES))
    evidence = [f"{name} is {values.a} in A and {values.b} in B"]
    changes: tuple[Change, ...] = ()
    if not_tried is None:
        value = values.of(subject.cheap)
        changes = (Change(f"{key} = {value}", settings=((key, value),)),)
    else:
        evidence.append(f"{NOT_TRIED}{not_tried}")
    cause = make_cause("setting", key, values, locations, tuple(evidence))
    return Lead("misconfiguration", cause, changes, suggest_setting(cause, subject.expensive))


def _settings_on(subject: Subject, side: SideName) -> Mapping[str, Setting]:
    run, op = subject.comparison.run(side), subject.op(side)
    return run.settings if op is None else settings_at(run, op)
