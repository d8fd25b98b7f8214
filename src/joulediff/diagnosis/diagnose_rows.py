"""The pass over rows: each row that differs is measured again, explained by evidence, and tried.

A row may instead join an earlier draft that was tried with it, or whose proof holds for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from joulediff.diagnosis.build import conclude, draft_row, max_saving_j
from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.calls.deviation import call_key, library_call, parting_functions
from joulediff.diagnosis.evidence.discarded_outputs import makes_more
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.evidence.host.idle_device import find_around, find_waits
from joulediff.diagnosis.lead import Lead, Subject, make_subject
from joulediff.diagnosis.merge import add_row_to
from joulediff.diagnosis.significance import RowComparison, is_different, may_differ
from joulediff.diagnosis.trials.region_trials import RegionTrials
from joulediff.diagnosis.trials.run_trials import run_trials
from joulediff.frameworks.framework import is_read
from joulediff.model.energy import difference_j, is_more_than, joules_of
from joulediff.model.finding import NOT_TRIED, Cause, Region
from joulediff.model.pair import SIDES, other_side
from joulediff.model.run import Run, is_view

# At most this many rows are tried; the others are reported by their evidence alone.
MAX_TRIED = 6
# Operators that alone cost more than this times the whole step were disturbed while they were recorded.
_DISTURBED = 1.2
# Work of one side is extra if the step has at least this part of it more than the other side's, of the same kind.
_EXTRA_SHARE = 0.5
# A region from this share of the median on counts as typical of its row.
_TYPICAL_SHARE = 0.8


def diagnose_rows(work: Investigation) -> None:
    """Diagnose every row that may differ, those with the most energy first."""
    comparison = work.comparison
    total_j = max(joules_of(comparison.costs[side].total) for side in SIDES)
    explained = {at for draft in work.drafts for at in draft.rows}
    rows = [
        (at, row) for at, row in enumerate(work.rows) if at not in explained and may_differ(row, work.limits, total_j)
    ]
    # Work that one side lacks may be part of a finding on the region that reads it, so it comes second.
    rows.sort(key=lambda each: (_is_one_sided(each[1]), -abs(each[1].delta_j)))
    around = find_around(comparison, work.limits.threshold)
    has_waits = around is not None and find_waits(comparison, around) is not None
    for place, (at, row) in enumerate(rows):
        work.listener.stage(f"diagnosing: {place + 1} of {len(rows)} differences", place / len(rows))
        if has_waits and _only_reads(comparison, row):  # part of the finding on waits
            work.settled[at] = "changed"
        elif not _join_tried(work, at, row) and not _only_views(comparison, row):
            _join_or_diagnose(work, at, row, is_sure=is_different(row, work.limits, total_j))


def _join_or_diagnose(work: Investigation, at: int, row: RowComparison, *, is_sure: bool) -> None:
    if is_sure and _join_proven(work, at, row):
        return
    draft = diagnose_row(work, at, row, is_sure=is_sure)
    if draft is None:
        if is_sure:
            work.settled[at] = "changed"
        return
    subject = _subject_of(work, row)
    key = proven_key(subject, draft.lead.cause) if draft.confirmed else None
    work.drafts.append(replace(draft, proof_key=key))


def diagnose_row(
    work: Investigation, at: int, row: RowComparison, *, is_sure: bool, at_host_pace: bool = False
) -> Draft | None:
    """Return the draft of a row; None if it does not differ when measured again, or saves as much elsewhere.

    A row that the recording is not sure of must differ when it is measured again: its own operators or, `at_host_pace`,
    all operators that lead to its outputs, launched one by one.
    """
    only = work.only_difference
    is_only = only is not None and only.is_row(row)
    region = typical_region(work.comparison, only.without_shared(row) if only is not None and is_only else row)
    to_run = _runnable_region(work.comparison, row, region)
    subject = make_subject(work.comparison, region, row.expensive)
    if subject.op(row.expensive) is None or not _is_more_work(work, row) or _is_disturbed(work, row):
        return None
    known_key = _call_key(subject)
    is_known = known_key is not None and any(draft.call_key == known_key for draft in work.drafts)
    can_run = to_run is not None and row.expensive in work.live and not is_known
    is_live = can_run and work.tried < MAX_TRIED and not is_only
    if not is_live and not is_sure and not is_only:
        return None
    trials = None
    if is_live and to_run is not None:
        trials = RegionTrials(work.comparison, row.expensive, to_run, work.live, work.limits, at_host_pace=at_host_pace)
        if not _differs_again(work, trials, row, region, is_sure=is_sure):
            return None
        work.tried += 1
        subject = replace(subject, live=work.live)
    leads = _find_leads(work, subject)
    draft = replace(
        draft_row(work, row, region, leads[0]),
        rows=(at,),
        leads=leads,
        subject=subject,
        trials=None if region.basis == "call" else trials,
        call_key=known_key,
        only_difference=only if is_only else None,
    )
    draft = conclude(work, row, run_trials(draft))
    if draft.trials is None and not is_only:
        reason = _why_not_tried(work, row, region, to_run)
        draft = replace(draft, lead=draft.lead.with_evidence(f"{NOT_TRIED}{reason}"))
    return draft


def _find_leads(work: Investigation, subject: Subject) -> tuple[Lead, ...]:
    """Return the leads of a row. Where both programs can be run, state was tried before and explains no open row."""
    leads = find_leads(subject)
    if len(work.live) > 1:
        leads.sort(key=lambda lead: lead.cause.type == "state")
    return tuple(leads)


def _call_key(subject: Subject) -> object:
    """Return a key for rows that do more of the same work in calls that agree: one call of the user's has one reason.

    It is None for other rows.
    """
    op = subject.op(subject.expensive)
    if subject.region.basis != "call" or op is None or not makes_more(subject):
        return None
    called = library_call(subject.comparison.run(subject.expensive), op)
    return (subject.expensive, *(() if called is None else call_key(called)))


def typical_region(comparison: Comparison, row: RowComparison) -> Region:
    """Return the first region of a row that costs about the median or more."""
    costs = comparison.costs[row.expensive]
    each_j = [joules_of(costs.of(ops_of(region, row.expensive))) for region in row.members]
    median_j = sorted(each_j)[len(each_j) // 2]
    return next(region for region, own_j in zip(row.members, each_j, strict=True) if own_j >= _TYPICAL_SHARE * median_j)


def proven_key(subject: Subject, cause: Cause) -> object:
    """Return a key that rows share for which one proof holds; None if no other row can share it.

    Either the call paths of their sides part inside a library to the same two functions, or they run one operator
    under one setting.
    """
    return _functions_of(subject) or _setting_of(subject, cause)


def _expected_key(subject: Subject) -> object:
    """Return that key by the strongest evidence of a row that was not tried."""
    if subject.op_a is None or subject.op_b is None:
        return None
    return _functions_of(subject) or _setting_of(subject, find_leads(subject)[0].cause)


def _functions_of(subject: Subject) -> object:
    """Return the two functions of a library to which the call paths part; None if they do not part in one."""
    if subject.op_a is None or subject.op_b is None:
        return None
    a, b = subject.comparison.a.call_path(subject.op_a), subject.comparison.b.call_path(subject.op_b)
    functions = parting_functions(a, b)
    return None if functions is None else (subject.expensive, *functions)


def _setting_of(subject: Subject, cause: Cause) -> object:
    """Return a setting and the operator that runs under it; None for another cause."""
    op = subject.op(subject.expensive)
    if cause.type != "setting" or op is None:
        return None
    name = subject.comparison.run(subject.expensive).ops[op].name
    return (subject.expensive, cause.key, cause.value_a, cause.value_b, name)


def _join_proven(work: Investigation, at: int, row: RowComparison) -> bool:
    """Add a row to a draft whose proof holds for it; return whether there is one."""
    if not any(draft.proof_key is not None for draft in work.drafts):
        return False
    key = _expected_key(_subject_of(work, row))
    places = [place for place, draft in enumerate(work.drafts) if key is not None and draft.proof_key == key]
    if not places or not _add_row(work, at, row, places[-1]):
        return False
    draft = work.drafts[places[-1]]
    work.drafts[places[-1]] = _grow_saving(draft, abs(row.delta_j))
    return True


def _grow_saving(draft: Draft, added_j: float) -> Draft:
    """Return a draft whose saving grew with the energy that was added to it."""
    confirmation, delta_j = draft.proof.confirmation, draft.cost.delta_j
    if confirmation is None or confirmation.saved_j is None or confirmation.saved_share is None:
        return draft
    factor = delta_j / max(delta_j - added_j, 1e-30)
    if confirmation.saved_j > 0:
        max_j = max_saving_j(draft.comparison, draft.expensive, delta_j)
        factor = max(1.0, min(factor, max_j / confirmation.saved_j))
    grown = replace(confirmation, saved_j=confirmation.saved_j * factor, saved_share=confirmation.saved_share * factor)
    return replace(draft, proof=replace(draft.proof, confirmation=grown))


def _join_tried(work: Investigation, at: int, row: RowComparison) -> bool:
    """Add a row to a draft that was tried with it, or work that one side lacks to a draft on its readers."""
    numbers = {region.id for region in row.members}
    for place, draft in enumerate(work.drafts):
        if draft.tried_regions and numbers <= draft.tried_regions:
            return _add_row(work, at, row, place)
    if not _is_one_sided(row):
        return False
    ops = [op for region in row.members for op in ops_of(region, row.expensive)]
    readers = {region.id for region in work.comparison.readers_of(ops, row.expensive)}
    for place, draft in enumerate(work.drafts):
        known = set(draft.regions) | _readers_of(draft)
        is_read = bool(readers) and readers <= known
        if draft.expensive == row.expensive and (is_read or _only_move_results(ops, draft)):
            return _add_row(work, at, row, place)
    return False


def _only_move_results(ops: Iterable[int], draft: Draft) -> bool:
    """Return whether operators only move the results of a proven draft's regions to their outputs."""
    comparison, side = draft.comparison, draft.expensive
    moving: set[int] = set()
    for number in draft.regions if draft.confirmed else ():
        region = comparison.by_id[number]
        moving.update(comparison.extend_to_outputs(region, side, comparison.runnable_ops(region, side)))
    return moving.issuperset(ops)


def _readers_of(draft: Draft) -> set[int]:
    if draft.lead.cause.type != "redundancy":
        return set()
    comparison = draft.comparison
    ops = [op for number in draft.regions for op in ops_of(comparison.by_id[number], draft.expensive)]
    return {region.id for region in comparison.readers_of(ops, draft.expensive)}


def _add_row(work: Investigation, at: int, row: RowComparison, place: int) -> bool:
    draft = work.drafts[place]
    if draft.expensive != row.expensive:
        return False
    more = draft_row(work, row, typical_region(work.comparison, row), draft.lead)
    work.drafts[place] = add_row_to(draft, replace(more, rows=(at,)))
    return True


def _subject_of(work: Investigation, row: RowComparison) -> Subject:
    return make_subject(work.comparison, typical_region(work.comparison, row), row.expensive)


def _is_one_sided(row: RowComparison) -> bool:
    return not any(ops_of(region, other_side(row.expensive)) for region in row.members)


def _only_views(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether a row has only views, which cost nothing that could be saved."""
    return all(
        is_view(comparison.run(side), op) for side in SIDES for region in row.members for op in ops_of(region, side)
    )


def _only_reads(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether a row only transfers numbers to the host."""
    run = comparison.run(row.expensive)
    return all(is_read(run.ops[op].name) for region in row.members for op in ops_of(region, row.expensive))


def _runnable_region(comparison: Comparison, row: RowComparison, region: Region) -> Region | None:
    """Return a region that both sides can run: for work that one side lacks, the region that reads it."""
    if ops_of(region, other_side(row.expensive)):
        return region
    readers = comparison.readers_of(ops_of(region, row.expensive), row.expensive)
    return readers[0] if readers else None


def _is_more_work(work: Investigation, row: RowComparison) -> bool:
    """Return whether work that one side lacks is extra and saves nothing; work of both sides always is."""
    if not _is_one_sided(row):
        return True
    return _costs_more_than_it_saves(work, row) and _is_extra(work.comparison, row)


def _costs_more_than_it_saves(work: Investigation, row: RowComparison) -> bool:
    """Return whether work that one side lacks costs more than it saves in the regions that read it."""
    comparison, cheap = work.comparison, other_side(row.expensive)
    ops = [op for region in row.members for op in ops_of(region, row.expensive)]
    readers = comparison.readers_of(ops, row.expensive)
    mine = comparison.costs[row.expensive].of(op for region in readers for op in ops_of(region, row.expensive))
    other = comparison.costs[cheap].of(op for region in readers for op in ops_of(region, cheap))
    saved_j = max(0.0, difference_j(other, mine))
    return abs(row.delta_j) > saved_j * (1 + work.limits.threshold)


def _is_extra(comparison: Comparison, row: RowComparison) -> bool:
    """Return whether work that one side lacks is more work of its kind in the whole step, by number or by energy.

    Otherwise the other side does it too, and the match did not find which operators belong together.
    """
    sides = row.expensive, other_side(row.expensive)
    own = Counter(_form(comparison.run(row.expensive), op) for region in row.members for op in ops_of(region, sides[0]))
    mine, theirs = (Counter(_form(run, op.id) for op in run.ops) for run in map(comparison.run, sides))
    if sum((own & (mine - theirs)).values()) >= _EXTRA_SHARE * sum(own.values()):
        return True
    names = {name for name, _ in own}
    ops = ([op.id for op in comparison.run(side).ops if op.name in names] for side in sides)
    energies = (comparison.costs[side].of(each) for side, each in zip(sides, ops, strict=True))
    return difference_j(*energies) >= _EXTRA_SHARE * abs(row.delta_j)


def _form(run: Run, op: int) -> tuple[str, tuple[object, ...]]:
    found = run.ops[op]
    return found.name, tuple((run.values[value].shape, run.values[value].dtype) for value in found.inputs)


def _is_disturbed(work: Investigation, row: RowComparison) -> bool:
    """Return whether a row costs more than the step that it is part of: then the recording was disturbed."""
    total = work.comparison.costs[row.expensive].total
    if not is_more_than(abs(row.delta_j), _DISTURBED, total):
        return False
    work.notes.append(f"{row.group.name}: its operators alone cost more than the whole step did; record again")
    return True


def _differs_again(
    work: Investigation, trials: RegionTrials, row: RowComparison, region: Region, *, is_sure: bool
) -> bool:
    """Return whether a difference shows when it is measured again; work that one side lacks must cost as recorded."""
    if _is_one_sided(row):
        found = trials.costs_again(ops_of(region, row.expensive))
    else:
        found = trials.repeats(with_inputs=trials.at_host_pace, is_sure=is_sure)
    if found is False and is_sure:
        work.notes.append(f"{row.group.name}: the difference did not show again when both sides were measured")
    return found is True or (found is None and is_sure)


def _why_not_tried(work: Investigation, row: RowComparison, region: Region, to_run: Region | None) -> str:
    if row.expensive not in work.live:
        return "the program is not available, only its recording"
    if region.basis == "call":
        return "its tensors differ between the programs, and only the calls around it agree"
    if to_run is None:
        return "its result is read by no work that both programs do"
    return "others cost more, and were tried first"
