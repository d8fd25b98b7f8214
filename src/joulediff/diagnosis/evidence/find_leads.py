"""The list of evidence, the strongest first.

State comes first: its trial changes the cause itself. Then evidence near the operator is strongest: its outputs and
inputs, then the settings it runs under, then the calls that led to it. Each function decides by the subject whether it
applies.
"""

from __future__ import annotations

from collections.abc import Callable

from joulediff.diagnosis.evidence.arguments import find_arguments, find_other_arguments
from joulediff.diagnosis.evidence.calls.call_path import find_call_path
from joulediff.diagnosis.evidence.copies import find_copies
from joulediff.diagnosis.evidence.discarded_outputs import find_discarded_outputs
from joulediff.diagnosis.evidence.gradients import find_gradients
from joulediff.diagnosis.evidence.layout import find_layout
from joulediff.diagnosis.evidence.redundancy import find_extra_inputs, find_redundancy
from joulediff.diagnosis.evidence.repetition import find_repetition
from joulediff.diagnosis.evidence.settings import find_environment, find_settings
from joulediff.diagnosis.evidence.shapes import describe_shapes, find_shapes
from joulediff.diagnosis.evidence.state import find_state
from joulediff.diagnosis.lead import CALLS_OF_OTHER_SIDE, Lead, Subject, make_cause
from joulediff.diagnosis.suggest import suggest_search
from joulediff.model.pair import Pair
from joulediff.model.run import Setting

_PACKAGE = "package."
_SAME_CALL = "the same call with the same inputs and settings ran other kernels, or the same ones at another cost"

EVIDENCE: tuple[Callable[[Subject], list[Lead]], ...] = (
    find_state,
    find_arguments,
    find_repetition,
    find_shapes,
    find_copies,
    find_gradients,
    find_discarded_outputs,
    find_layout,
    find_settings,
    find_environment,
    find_other_arguments,
    find_extra_inputs,
    find_call_path,
    find_redundancy,
)


def find_leads(subject: Subject) -> list[Lead]:
    """Return the causes that the evidence points to, the strongest first; at least one, which may be unknown."""
    leads = [lead for find in EVIDENCE for lead in find(subject)]
    return leads or [unknown_lead(subject, describe_shapes(subject) or _SAME_CALL)]


def unknown_lead(subject: Subject, observation: str, *, settings_differ: bool = False) -> Lead:
    """Return the lead without a key: an observation, the kernels of both sides, and versions that differ."""
    values: Pair[Setting] = Pair(*subject.kernels)
    versions = _differing_versions(subject)
    cause = make_cause("kernel", None, values, subject.places, (observation, *versions))
    look = ["the versions of libraries"] if versions else []
    look += ["the settings under 'also differs'"] if settings_differ else []
    suggestion = suggest_search(
        cause, subject.expensive, functions=subject.functions, kernels=subject.kernels, look=look
    )
    return Lead("unknown", cause, (CALLS_OF_OTHER_SIDE,), suggestion)


def _differing_versions(subject: Subject) -> list[str]:
    """Return packages of different versions: a program does not set them, but they may bring other kernels."""
    a, b = subject.comparison.a.settings, subject.comparison.b.settings
    names = sorted(name for name in a.keys() & b.keys() if name.startswith(_PACKAGE) and a[name] != b[name])
    return [f"{name.removeprefix(_PACKAGE)} is {a[name]} in A and {b[name]} in B" for name in names]
