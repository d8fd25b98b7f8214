"""The pass over suspects: what differs between two programs is changed in the expensive one, and the step measured.

A cause that is found holds the rows whose operators it changes, on both sides: what the cheap program pays for it is
part of its cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.diagnosis.build import describe_work, make_confirmation_of_step, make_cost
from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.diagnose_rows import typical_region
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.host.idle_device import find_around
from joulediff.diagnosis.lead import make_subject
from joulediff.diagnosis.significance import RowComparison, is_different, may_differ
from joulediff.diagnosis.suspects.effect import Effect, find_effect
from joulediff.diagnosis.suspects.find_suspects import find_differences
from joulediff.diagnosis.suspects.name_cause import name_cause
from joulediff.diagnosis.suspects.proven import make_proven
from joulediff.diagnosis.suspects.suspect import Differences
from joulediff.diagnosis.suspects.try_suspects import (
    FEW_LINES,
    NEAR_SHARE,
    Explained,
    Search,
    Tried,
    largest_first,
)
from joulediff.model.energy import Energy, add_known, costlier_side, difference_j, joules_of, ratio, shift
from joulediff.model.finding import Cost, Proof, ProofWord, Region
from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from

# A cost by rows is used if it is at least this share of what the change saves.
_LEAST_SHARE = 0.5
# More than this times what the change saves is an error of the rows.
_MOST_SHARE = 1.5


def diagnose_suspects(work: Investigation) -> None:
    """Find the causes of the difference between two steps by changing what differs between their programs."""
    extra = _find_extra(work) if len(work.live) > 1 else None
    if extra is None:
        return
    side, whole, other = extra
    measured = work.comparison.run(side).measurement
    step_s = 0.0 if measured is None else measured.step_s
    best: tuple[Differences, Explained] | None = None
    for differences in find_differences(work, side):
        programs = work.live[side], work.live[other_side(side)]
        search = Search(differences, *programs, whole, other, step_s, work.limits.difference, work.listener)
        found = search.explain()
        if found.causes and (best is None or found.is_all):
            best = (differences, found)
        if found.is_all:
            break
    if best is not None:
        _add_drafts(work, side, *best)


def _find_extra(work: Investigation) -> tuple[SideName, Energy, Energy] | None:
    """Return the expensive side with its energy, and that of the cheap one; None if they do not differ.

    Steps that were measured with too much noise differ by the rows that clearly do.
    """
    totals = Pair(*(work.comparison.costs[side].total for side in SIDES))
    if totals.a is None or totals.b is None:
        return None
    if _is_clear(totals, work.limits.threshold):
        side = costlier_side(*totals)
        whole, other = totals.of(side), totals.of(other_side(side))
        assert whole is not None and other is not None
        return side, whole, other
    total_j = max(joules_of(totals.a), joules_of(totals.b))
    extra_j = sum(row.delta_j for row in work.rows if is_different(row, work.limits, total_j))
    side = "a" if extra_j > 0 else "b"
    whole = totals.of(side)
    if whole is None or abs(extra_j) <= work.limits.threshold * total_j or abs(extra_j) >= whole.joules:
        return None
    other = shift(whole, -abs(extra_j))
    return None if other is None else (side, whole, other)


def _is_clear(totals: Pair[Energy | None], threshold: float) -> bool:
    """Return whether the steps differ by more than the threshold, and by more than their intervals."""
    found = ratio(*totals)
    if found is None or found.may_be_one:
        return False
    return max(found.value, 1 / found.value) > 1 + threshold


def _add_drafts(work: Investigation, side: SideName, differences: Differences, found: Explained) -> None:
    total_j = max(joules_of(work.comparison.costs[each].total) for each in SIDES)
    open_rows = {at for at, row in enumerate(work.rows) if may_differ(row, work.limits, total_j)}
    effects = {each.chosen: _effect_of(work, side, each) for each in found.causes}
    is_only = found.is_all and len(found.causes) == 1
    for cause in largest_first(found.causes):
        effect = effects[cause.chosen]
        rows = [at for at in open_rows if is_only or effect.affects(work.comparison, side, work.rows[at])]
        open_rows.difference_update(rows)
        work.drafts.append(_draft(work, side, differences, cause, effect, rows, found))


def _effect_of(work: Investigation, side: SideName, tried: Tried) -> Effect:
    if tried.run is None:
        return Effect(frozenset(), frozenset())
    return find_effect(work.comparison.run(side), tried.run)


def _draft(
    work: Investigation,
    side: SideName,
    differences: Differences,
    tried: Tried,
    effect: Effect,
    rows: Sequence[int],
    found: Explained,
) -> Draft:
    comparison = work.comparison
    is_only = found.is_all and len(found.causes) == 1
    ordered = _chief_first(work, side, rows)
    region = _chief_region(work, side, ordered)
    subject = None if region is None else make_subject(comparison, region, side)
    lead = name_cause(make_proven(work, side, differences, tried, effect, subject))
    by_rows, holds_around = _energies(work, side, [work.rows[at] for at in ordered], tried, is_only=is_only)
    energies = by_rows or _measured(comparison, side, tried, is_only=is_only)
    is_other = tried.outcome == "outputs differ"
    is_proven = not is_other and (found.is_all or (by_rows is not None and _explains_rows(side, by_rows, tried)))
    trials = [tried.trial, *([] if found.together is None else [found.together.trial])]
    confirmation = make_confirmation_of_step(comparison, side, trials, tried.saved_j)
    draft = Draft(
        comparison,
        work.limits,
        side,
        f"step: {lead.cause.key}",
        _cost(work, side, energies, tried, ordered),
        lead,
        verdict="tradeoff" if is_other or _is_slower(work, tried) else "waste",
        proof=Proof(_word(differences, tried) if is_proven else "observed", confirmation),
        regions=tuple(number for at in ordered for number in work.rows[at].group.regions),
        rows=tuple(ordered),
        holds_around=holds_around or (by_rows is None and is_only),
        is_whole_cause=True,
    )
    if region is None:
        return draft
    group = work.rows[ordered[0]].group
    return replace(
        draft,
        name=group.name,
        where=group.where,
        work=describe_work(comparison, region),
        count=len(group.regions),
    )


def _word(differences: Differences, tried: Tried) -> ProofWord:
    """Return the word of proof of a change that explains the difference: one of many lines replaces code."""
    replaces_code = differences.lines_of(tried.chosen) > FEW_LINES or differences.brings_code(tried.chosen)
    return "replacement confirmed" if replaces_code else "cause confirmed"


def _chief_first(work: Investigation, side: SideName, rows: Sequence[int]) -> list[int]:
    """Return rows with the one that costs the expensive side the most extra energy first."""
    mine = [at for at in rows if _is_costly(work.rows[at], side)]
    chief = max(mine, key=lambda at: abs(work.rows[at].delta_j), default=None)
    return [*([] if chief is None else [chief]), *(at for at in rows if at != chief)]


def _chief_region(work: Investigation, side: SideName, ordered: Sequence[int]) -> Region | None:
    """Return a typical region of the first row; None if no row costs the expensive side more."""
    if not ordered or not _is_costly(work.rows[ordered[0]], side):
        return None
    return typical_region(work.comparison, work.rows[ordered[0]])


def _is_costly(row: RowComparison, side: SideName) -> bool:
    return row.expensive == side and any(ops_of(region, side) for region in row.members)


def _cost(
    work: Investigation, side: SideName, energies: Pair[Energy | None], tried: Tried, rows: Sequence[int]
) -> Cost:
    return make_cost(
        work.comparison,
        side,
        energies,
        delta_j=difference_j(energies.of(side), energies.of(other_side(side))),
        p_value=min((p for at in rows if (p := work.rows[at].p_value) is not None), default=None),
        times_s=pair_from(side, tried.cost.before_s, tried.cost.after_s),
        difference=tried.cost.difference,
    )


def _is_slower(work: Investigation, tried: Tried) -> bool:
    return (tried.cost.after_s or 0.0) > (tried.cost.before_s or 0.0) * (1 + work.limits.slower)


def _explains_rows(side: SideName, energies: Pair[Energy | None], tried: Tried) -> bool:
    """Return whether the energy of the rows of a cause falls to within 10 % of the cheap side's."""
    left_j = joules_of(energies.of(side)) - tried.saved_j
    return left_j <= (1 + NEAR_SHARE) * joules_of(energies.of(other_side(side)))


def _energies(
    work: Investigation, side: SideName, rows: Sequence[RowComparison], tried: Tried, *, is_only: bool
) -> tuple[Pair[Energy | None] | None, bool]:
    """Return the energy of the rows of a cause, and whether that around operators is counted in.

    None for rows that hold much less or more than the change saves: they do not tell its cost.
    """
    comparison = work.comparison
    if comparison.is_whole_step:
        return None, False
    parts = Pair(*(add_known(row.energies.of(each) for row in rows) for each in SIDES))
    around = find_around(comparison, work.limits.threshold)
    holds_around = around is not None and around.expensive == side and is_only
    if around is not None and holds_around:
        parts = Pair(*(add_known((parts.of(each), around.energies.of(each))) for each in SIDES))
    extra_j = difference_j(parts.of(side), parts.of(other_side(side)))
    is_like = _LEAST_SHARE * tried.saved_j <= extra_j <= _MOST_SHARE * tried.saved_j
    return (parts, holds_around) if is_like else (None, False)


def _measured(comparison: Comparison, side: SideName, tried: Tried, *, is_only: bool) -> Pair[Energy | None]:
    """Return the energies of whole steps: of both programs for the only cause, else without and with the change."""
    if is_only:
        return Pair(*(comparison.costs[each].total for each in SIDES))
    return pair_from(side, tried.trial.before, tried.trial.after)
