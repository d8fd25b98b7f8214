"""Names a proven cause: its kind, its key with both values, and the user's line.

The first of the namers that knows a name gives it. A setting or a value of the state is named as its library documents
it; evidence on the rows may know a better name for replaced code than its text; the text of the edit comes last.
"""

from __future__ import annotations

from collections.abc import Callable

from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.suspects.name_by_edit import name_by_edit
from joulediff.diagnosis.suspects.name_by_evidence import (
    name_by_lead,
    name_cast_of_replaced_code,
    name_layout,
    name_replaced_code,
    name_work_of_replaced_code,
)
from joulediff.diagnosis.suspects.name_by_state import (
    name_changed_value,
    name_passed_text,
    name_setting,
    name_value_of_line,
)
from joulediff.diagnosis.suspects.proven import Proven

_NAMERS: tuple[Callable[[Proven], Lead | None], ...] = (
    name_setting,
    name_changed_value,
    name_value_of_line,
    name_passed_text,
    name_by_lead,
    name_layout,
    name_cast_of_replaced_code,
    name_replaced_code,
    name_work_of_replaced_code,
    name_by_edit,
)


def name_cause(proven: Proven) -> Lead:
    """Return the lead of a proven cause."""
    return next(lead for namer in _NAMERS if (lead := namer(proven)) is not None)
