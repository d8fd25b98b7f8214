"""The passes over energy outside of operators: lines of the host, waits, an idle device, and busy waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from joulediff.diagnosis.build import add_around, draft_busy_wait, draft_host_line, draft_waits, saved_by_trial
from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.diagnose_rows import diagnose_row
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.host.busy_wait import find_busy_wait
from joulediff.diagnosis.evidence.host.host_lines import HostLine, find_host_lines
from joulediff.diagnosis.evidence.host.idle_device import (
    LEAST_OPS,
    Around,
    Waits,
    find_around,
    find_launches,
    find_waits,
)
from joulediff.diagnosis.evidence.host.library_work import find_library_work
from joulediff.diagnosis.evidence.host.slower_calls import find_slower_calls
from joulediff.diagnosis.trials.run_trials import run_trials
from joulediff.model.energy import costlier_side, difference_j, is_more_than, overlap
from joulediff.model.pair import SIDES, Pair, SideName, other_side

# At most this many lines are reported.
MAX_LINES = 3
# Lines are left to other evidence if they have less than this share of the extra time of the step.
_LEAST_OF_TIME = 0.3
# Rows that explain this share of the difference leave nothing to lines of the host.
_EXPLAINED_SHARE = 0.7
_MORE_WORK = "more operators are more work for the host"
# Lines that both programs have say most. Programs that are written differently have few of them.
_EVIDENCE: tuple[Callable[[Comparison, SideName], tuple[HostLine, ...]], ...] = (
    find_host_lines,
    find_slower_calls,
    find_library_work,
)


def diagnose_host(work: Investigation) -> None:
    """Explain the energy around operators by lines of the host, waits, work within an operator, or launches."""
    around = find_around(work.comparison, work.limits.threshold)
    if any(draft.holds_around for draft in work.drafts):
        return
    if around is None:
        _diagnose_lines(work, None)
        return
    waits = find_waits(work.comparison, around)
    if waits is None and _diagnose_lines(work, around):
        return
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


def diagnose_lines(work: Investigation) -> None:
    """Explain the difference of whole steps by lines of the host."""
    _diagnose_lines(work, None)


def _diagnose_lines(work: Investigation, around: Around | None) -> bool:
    """Add a draft for each line of the host that explains the difference; return whether there is one."""
    expensive = _costlier_step(work) if around is None else around.expensive
    if expensive is None:
        return False
    lines = _find_lines(work, expensive)
    if not lines:
        return False
    total_s = sum(line.excess_s for line in lines)
    drafts = [draft_host_line(work, line, around, line.excess_s / total_s) for line in lines]
    work.drafts[:0] = [run_trials(draft) for draft in drafts]
    return True


def _find_lines(work: Investigation, expensive: SideName) -> list[HostLine]:
    """Return the lines of the first kind of evidence that explains enough of the extra time."""
    known = [draft.lead.cause.locations.of(expensive) for draft in work.drafts]
    least_s = _LEAST_OF_TIME * _extra_time_s(work, expensive)
    for find in _EVIDENCE:
        found = find(work.comparison, expensive)
        lines = [line for line in found if not line.runs_operators and line.place not in known][:MAX_LINES]
        if lines and sum(line.excess_s for line in lines) >= least_s:
            return lines
    return []


def _costlier_step(work: Investigation) -> SideName | None:
    """Return the side whose step costs more than both intervals and the drafts so far explain."""
    totals = Pair(*(work.comparison.costs[side].total for side in SIDES))
    expensive, delta_j = costlier_side(*totals), abs(difference_j(*totals))
    if overlap(*totals) or not is_more_than(delta_j, work.limits.threshold, totals.of(other_side(expensive))):
        return None
    explained_j = sum(draft.cost.delta_j for draft in work.drafts if draft.expensive == expensive)
    return expensive if explained_j < _EXPLAINED_SHARE * delta_j else None


def _extra_time_s(work: Investigation, expensive: SideName) -> float:
    """Return the extra time of a side's step in the metered pass; 0 if it is no longer."""
    mine, other = (work.comparison.run(side).measurement for side in (expensive, other_side(expensive)))
    return 0.0 if mine is None or other is None else max(0.0, mine.step_s - other.step_s)


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
    """Explain the energy by the draft, or else the row, with most of the extra operators, tried at the host's pace."""
    place = _draft_with_launches(work, around)
    if place is not None:
        _add_around(work, place, around, _MORE_WORK)
        return
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
    _add_around(work, place, around, _MORE_WORK)


def _draft_with_launches(work: Investigation, around: Around) -> int | None:
    """Return the place of the draft with most of the expensive side's extra operators; None without such a draft."""
    comparison, mine, other = work.comparison, around.expensive, other_side(around.expensive)
    total = len(comparison.run(mine).ops) - len(comparison.run(other).ops)
    extra = {
        place: sum(
            len(ops_of(comparison.by_id[at], mine)) - len(ops_of(comparison.by_id[at], other)) for at in draft.regions
        )
        for place, draft in enumerate(work.drafts)
        if draft.expensive == mine
    }
    place = max(extra, key=lambda each: extra[each], default=None)
    return place if place is not None and total >= LEAST_OPS and extra[place] >= total / 2 else None


def _add_around(work: Investigation, place: int, around: Around, why: str) -> None:
    work.drafts[place] = add_around(work.drafts[place], around, why)
