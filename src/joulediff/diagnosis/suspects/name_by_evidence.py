"""Names a proven cause by evidence on its row, where edits replace code: an argument, a layout, a call, a function."""

from __future__ import annotations

import re
from dataclasses import replace

from joulediff.diagnosis.evidence.host.host_lines import find_host_lines, host_line_lead
from joulediff.diagnosis.evidence.host.slower_calls import find_slower_calls
from joulediff.diagnosis.lead import Lead, make_cause
from joulediff.diagnosis.suggest import suggest_other_code
from joulediff.diagnosis.suspects.proven import Proven
from joulediff.diagnosis.suspects.source_names import is_function, last_word, sets_code, to_value
from joulediff.frameworks.framework import short_name
from joulediff.model.energy import saved_share
from joulediff.model.finding import CauseType
from joulediff.model.pair import Pair, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting, is_view
from joulediff.pysource.edits.edit import Edit

_CHANGED_ALONE = "the lines were changed alone, as in the other program"
# A line of the host names replaced code if it has this part of the extra share of the step.
_MOST_OF_EXTRA = 0.5
# Evidence that names more than the call that differs.
_PRECISE: tuple[CauseType, ...] = ("argument", "layout", "repetition", "shape")


def name_by_lead(proven: Proven) -> Lead | None:
    """Return a lead on the lines of the only edit, which replaces more than a plain value; the edit was its trial."""
    edit = proven.edit
    if edit is None or len(proven.edits) != 1:
        return None
    passes_code = is_function(edit.value_a)
    if edit.kind in ("argument", "left_out", "moved") and not edit.context and not passes_code:
        return None
    lead = next((each for each in proven.leads if _is_named_by(proven, edit, each, passes_code=passes_code)), None)
    if lead is None:
        return None
    is_replaced = passes_code and lead.kind == "redundant" and bool(proven.effect.added)
    lead = replace(lead, kind="api_misuse") if is_replaced else lead
    return lead.with_evidence(_CHANGED_ALONE)


def _is_named_by(proven: Proven, edit: Edit, lead: Lead, *, passes_code: bool) -> bool:
    """Return whether a lead names what an edit changes, and names it better than the text of the edit."""
    cause = lead.cause
    if cause.key is None:
        return False
    if edit.context and cause.type == "setting":
        return True
    place = cause.locations.of(proven.side)
    if place is None or place.file != edit.path or not edit.line <= place.line <= edit.end_line:
        return False
    is_better = cause.type in _PRECISE or ((edit.kind == "code" or passes_code) and cause.type != "kernel")
    is_laid_out = cause.type == "layout" and _leaves_out_view(proven.run, edit)
    return is_better and (passes_code or is_laid_out or _is_written(cause.key, edit))


def _leaves_out_view(run: Run, edit: Edit) -> bool:
    """Return whether the expensive side's text of an edit makes a view, such as a permuted one, and the other's not."""
    views = {short_name(op.name) for op in run.ops if is_view(run, op.id)}
    mine, other = (set(re.findall(r"\w+", text or "")) for text in (edit.value_a, edit.value_b))
    return bool(views & (mine - other))


def _is_written(key: str, edit: Edit) -> bool:
    """Return whether the lines of an edit hold the last word of a key: what is named was changed."""
    word = last_word(key)
    return bool(word) and _has_word(f"{edit.value_a} {edit.value_b}", word)


def name_layout(proven: Proven) -> Lead | None:
    """Return the lead of a layout or data type that all edits write down, at the line of the first one."""
    for lead in proven.leads if proven.edits else ():
        key = lead.cause.key
        is_written = key is not None and all(key in f"{edit.value_a} {edit.value_b}" for edit in proven.edits)
        if lead.cause.type == "layout" and is_written:
            return _moved_to(lead, proven.places(proven.edits[0]))
    return None


def name_cast_of_replaced_code(proven: Proven) -> Lead | None:
    """Return the lead of a data type, at the line of an edit that puts other code in the place of code with a cast."""
    if not _replaces_code(proven) or proven.edit is None:
        return None
    cast = next((lead for lead in proven.leads if lead.cause.type == "layout" and lead.cause.key == "dtype"), None)
    return None if cast is None else _moved_to(cast, proven.places(proven.edit)).with_evidence(_CHANGED_ALONE)


def name_replaced_code(proven: Proven) -> Lead | None:
    """Return the lead of a function, or its class, that the expensive side runs and that an edit replaces."""
    edit, subject = proven.edit, proven.subject
    if not _replaces_code(proven) or edit is None or subject is None:
        return None
    mine = subject.functions.of(proven.side)
    if mine is None or "." not in mine.function:
        return None
    names = (mine.function, mine.function.rpartition(".")[0])
    name = next((each for each in names if _is_new(each, edit)), None)
    if name is None:
        return None
    evidence = f"{mine.function} ({mine.file}:{mine.line}) does the work on this side"
    values: Pair[Setting] = pair_from(proven.side, mine.function, to_value(edit.value_b))
    cause = make_cause("call_path", name, values, proven.places(edit), (evidence, _CHANGED_ALONE))
    return Lead("api_misuse", cause, (), suggest_other_code(cause, proven.side, inside=mine))


def name_work_of_replaced_code(proven: Proven) -> Lead | None:
    """Return the lead of the work that differs, where functions of the other program take the place of this one's.

    The edits then only call other functions: what differs is inside of these.
    """
    if not proven.brings_code:
        return None
    if proven.leads:
        return next((lead for lead in proven.leads if lead.cause.key is not None), None)
    lines = find_slower_calls(proven.comparison, proven.side) or find_host_lines(proven.comparison, proven.side)
    extra = saved_share(*(proven.comparison.costs[each].total for each in (proven.side, other_side(proven.side))))
    is_most = bool(lines) and extra is not None and lines[0].share >= _MOST_OF_EXTRA * extra
    return host_line_lead(lines[0]) if is_most else None


def _replaces_code(proven: Proven) -> bool:
    """Return whether the chief edit puts code in the place of other code where the program is built."""
    edit = proven.edit
    if edit is None or proven.lines or proven.subject is None:
        return False
    return any(sets_code(patch.text, proven.functions) for patch in edit.patches)


def _is_new(name: str, edit: Edit) -> bool:
    """Return whether only the cheap side of an edit has a name."""
    return _has_word(edit.value_b or "", name) and not _has_word(edit.value_a or "", name)


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def _moved_to(lead: Lead, places: Pair[Place | None]) -> Lead:
    return replace(lead, cause=replace(lead.cause, location_a=places.a, location_b=places.b))
