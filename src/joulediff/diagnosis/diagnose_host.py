"""The passes over energy outside of operators: waits, an idle device, the host's work, and busy waiting."""

from __future__ import annotations

from dataclasses import replace

from joulediff.diagnosis.build import add_around, draft_busy_wait, draft_waits, saved_by_trial
from joulediff.diagnosis.comparison import ops_of
from joulediff.diagnosis.diagnose_rows import diagnose_row
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.busy_wait import find_busy_wait
from joulediff.diagnosis.evidence.host import Around, Waits, find_around, find_launches, find_waits
from joulediff.diagnosis.trials.run_trials import run_trials


def diagnose_host(work: Investigation) -> None:
    """Explain the energy around operators by waits, by a host that works within an operator, or by launches."""
    around = find_around(work.comparison, work.limits.threshold)
    if around is None or any(draft.holds_around for draft in work.drafts):
        return
    waits = find_waits(work.comparison, around)
    if waits is None:
        place = _draft_with_host_work(work, around)
        if place is None:
            _explain_launches(work, around)
        else:
            _add_around(work, place, around, "the host works within it while the device waits")
        return
    place = _draft_that_waits(work, around, waits)
    if place is None:
        work.drafts.insert(0, run_trials(draft_waits(work, around, waits)))
    else:
        _add_around(work, place, around, "the host waits there for the device")


def diagnose_busy_wait(work: Investigation) -> None:
    """Add the draft of a host that spins while it waits, if there is one."""
    found = find_busy_wait(work.comparison, work.limits.threshold)
    if found is not None:
        work.drafts.insert(0, run_trials(draft_busy_wait(work, found)))


def _draft_that_waits(work: Investigation, around: Around, waits: Waits) -> int | None:
    """Return the place of a draft on the function that waits."""
    waiting = work.comparison.run(around.expensive).call_path(waits.op)[-1:]
    functions = [(frame.file, frame.function) for frame in waiting]
    for place, draft in enumerate(work.drafts):
        path = draft.work.paths.of(around.expensive)[-1:]
        is_same = functions == [(each.file, each.function) for each in path]
        if is_same and draft.expensive == around.expensive and draft.lead.cause.type == "call_path":
            return place
    return None


def _draft_with_host_work(work: Investigation, around: Around) -> int | None:
    """Return the place of a draft on an operator during which the device waits, if its trial saves that energy."""
    waiting = {wait.op for wait in work.comparison.run(around.expensive).waits}
    for place, draft in enumerate(work.drafts):
        more_j = saved_by_trial(draft) - draft.cost.delta_j
        is_waiting = bool(waiting.intersection(_ops_of(draft, around)))
        if draft.expensive == around.expensive and is_waiting and more_j > around.delta_j / 2:
            return place
    return None


def _ops_of(draft: Draft, around: Around) -> set[int]:
    by_id = draft.comparison.by_id
    return {op for number in draft.regions for op in ops_of(by_id[number], around.expensive)}


def _explain_launches(work: Investigation, around: Around) -> None:
    """Explain the energy by the row with most of the extra operators, tried at the pace of the host."""
    at = find_launches(work.comparison, work.rows, around)
    if at is None:
        return
    place = next((place for place, draft in enumerate(work.drafts) if draft.rows[:1] == (at,)), None)
    if place is None:
        row = work.rows[at]
        if row.expensive != around.expensive and abs(row.delta_j) > around.delta_j:
            return
        draft = diagnose_row(work, at, replace(row, side=around.expensive), is_sure=False, at_host_pace=True)
        if draft is None:
            return
        place = len(work.drafts)
        work.drafts.append(draft)
    _add_around(work, place, around, "more operators are more work for the host")


def _add_around(work: Investigation, place: int, around: Around, why: str) -> None:
    work.drafts[place] = add_around(work.drafts[place], around, why)
