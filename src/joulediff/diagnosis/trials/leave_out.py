"""Trial: the whole step without one statement of the host.

The program is built again from its source, with `pass` in place of the statement. Its outputs are compared.
"""

from __future__ import annotations

from dataclasses import replace

from joulediff.diagnosis.draft import Draft
from joulediff.diagnosis.suggest import suggest_less_work
from joulediff.diagnosis.trials.whole_step import MEASURE_S, step_proof, step_trial
from joulediff.frameworks.jobs import LiveProgram, Variant
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import NOT_TRIED
from joulediff.model.pair import other_side
from joulediff.model.place import Place
from joulediff.pysource.edits.edit import leave_out


def try_leaving_out(draft: Draft) -> Draft:
    """Return the draft after a trial without its statement, if it is about a line of the host."""
    if draft.host_line is None or draft.expensive not in draft.live:
        return draft
    place = draft.host_line.place
    change = f"{place.file}:{place.line} left out"
    other = draft.comparison.costs[other_side(draft.expensive)].total
    try:
        variant = _without(draft.live[draft.expensive], place)
        if variant is None:
            lead = draft.lead
            used = replace(lead, kind="host", suggestion=suggest_less_work(lead.cause, draft.expensive))
            why = f"the result of {place.file}:{place.line} is used, so it cannot be left out"
            return _not_tried(replace(draft, lead=used), why)
        found, _ = draft.live[draft.expensive].try_variant(variant, seconds=MEASURE_S)
    except JoulediffError as error:
        return _not_tried(draft, error.what)
    trial = step_trial(change, found, found.before, other, draft.limits)
    return replace(draft, proof=step_proof(trial, draft.comparison.costs[draft.expensive].total))


def _not_tried(draft: Draft, why: str) -> Draft:
    return replace(draft, lead=draft.lead.with_evidence(f"{NOT_TRIED}{why}"))


def _without(program: LiveProgram, place: Place) -> Variant | None:
    """Return the program without the statement at a place; None if it cannot be left out."""
    files = program.read_source().files
    file = next((each for each in files if each.path == place.file), None)
    changed = None if file is None else leave_out(file, place.line)
    return None if changed is None else Variant(files=(changed,))
