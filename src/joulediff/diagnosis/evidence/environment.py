"""Evidence: an environment variable differs. Only a new process could change it, so it is not tried."""

from __future__ import annotations

from joulediff.diagnosis.evidence.settings import setting_lead, settings_of_subject
from joulediff.diagnosis.lead import Lead, Subject

_PREFIX = "env."


def find_environment(subject: Subject) -> list[Lead]:
    """Return a lead for each environment variable that differs."""
    if subject.relation == "one_sided":
        return []
    return [
        setting_lead(
            subject,
            key,
            values,
            name=key.removeprefix(_PREFIX),
            not_tried="the environment cannot be changed at run time",
        )
        for key, values in settings_of_subject(subject).items()
        if key.startswith(_PREFIX)
    ]
