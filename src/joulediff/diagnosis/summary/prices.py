"""Join the drafts of one library call that was made differently, and add to each draft what its fix costs elsewhere.

The cheap side may do extra work for the same reason, such as a copy of an output with another layout. That work is the
price of the fix: it is part of the draft, and the draft's cost and saving are net of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from joulediff.diagnosis.build import draft_row, make_cost
from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.diagnosis.evidence.calls.deviation import parting_functions
from joulediff.diagnosis.lead import make_subject
from joulediff.diagnosis.merge import add_row_to, join
from joulediff.model.energy import add_known, share_of
from joulediff.model.finding import CauseType, Price, Proof, Region
from joulediff.model.pair import SIDES, Pair, SideName, other_side
from joulediff.model.run import Frame, Run, is_view

# Causes that a person sets: they speak for other drafts of the same call.
_SET: tuple[CauseType, ...] = ("setting", "state", "argument", "code", "shape")
# Operators of two programs are the same work if this share of them have the same names.
_MOST_ALIKE = 0.8
_Functions = Pair[tuple[str, str]]


def merge_same_functions(work: Investigation) -> None:
    """Join drafts of one side whose work is in two functions of a library, of which each program runs another one."""
    groups: dict[object, list[Draft]] = {}
    known = {functions for draft in work.drafts if (functions := _functions_of(draft)) is not None}
    for draft in work.drafts:
        functions = _functions_of(draft) or _functions_around(draft, known)
        key = id(draft) if functions is None else (functions, draft.expensive)
        groups.setdefault(key, []).append(draft)
    found = [join(_speaker(part), part) for group in groups.values() for part in _split(group)]
    work.drafts = sorted(found, key=lambda draft: -draft.cost.delta_j)


def add_prices(work: Investigation) -> None:
    """Subtract from each draft the extra work of the cheap side for the same cause, which is no draft of its own."""
    left = sorted((_with_inputs(work, draft) for draft in work.drafts), key=lambda draft: -draft.cost.delta_j)
    found: list[Draft] = []
    while left:
        draft, *left = left
        for other in list(left):
            # A draft is paid for out of what is left of its saving.
            if other.cost.delta_j < draft.cost.delta_j and _is_price(other, draft):
                draft = _subtract(draft, other)
                left.remove(other)
            elif _is_consequence(other, draft):
                draft = add_row_to(draft, other)
                left.remove(other)
        found.append(draft)
    work.drafts = sorted(found, key=lambda draft: -draft.cost.delta_j)


def _with_inputs(work: Investigation, draft: Draft) -> Draft:
    """Return a draft less the work of the cheap side that only prepares the inputs of its regions.

    Such a row saves more than it costs, and is no draft.
    """
    comparison, cheap = work.comparison, other_side(draft.expensive)
    for at, verdict in work.settled.items():
        row = work.rows[at]
        if verdict != "changed" or row.expensive != cheap or not draft.rows:
            continue
        if any(ops_of(region, draft.expensive) for region in row.members):
            continue
        readers = comparison.readers_of((op for region in row.members for op in ops_of(region, cheap)), cheap)
        is_read = bool(readers) and {region.id for region in readers} <= set(draft.regions)
        if is_read and abs(row.delta_j) < draft.cost.delta_j:
            extra = draft_row(work, row, row.members[0], draft.lead)
            draft = _subtract(
                draft, replace(extra, rows=(at,), subject=make_subject(comparison, row.members[0], cheap))
            )
    return draft


def _functions_of(draft: Draft) -> _Functions | None:
    """Return the two functions of a library to which the call paths of a draft part."""
    subject = draft.subject
    if subject is None or not draft.rows or subject.op_a is None or subject.op_b is None:
        return None
    return parting_functions(subject.comparison.a.call_path(subject.op_a), subject.comparison.b.call_path(subject.op_b))


def _functions_around(draft: Draft, known: Iterable[_Functions]) -> _Functions | None:
    """Return the functions, of those that are known, in which work runs that the other side lacks."""
    subject = draft.subject
    if subject is None or not draft.rows or subject.relation != "one_sided":
        return None
    op = subject.op(draft.expensive)
    path = () if op is None else subject.comparison.run(draft.expensive).call_path(op)
    functions = {(frame.file, frame.function) for frame in path}
    return next((each for each in known if each.of(draft.expensive) in functions), None)


def _split(drafts: Sequence[Draft]) -> list[list[Draft]]:
    """Return the drafts in one list, or in two if a trial confirmed some of them and failed for others."""
    failed = [draft for draft in drafts if draft.proof.trials and not draft.confirmed]
    if not failed or not any(draft.confirmed for draft in drafts):
        return [list(drafts)]
    return [[draft for draft in drafts if draft not in failed], failed]


def _speaker(drafts: Sequence[Draft]) -> Draft:
    """Return the draft whose cause is that of all: a confirmed one, then one that a person sets, then the largest."""

    def strength(draft: Draft) -> tuple[bool, bool, float]:
        is_set = draft.lead.cause.type in _SET or draft.lead.kind == "misconfiguration"
        return (draft.confirmed, is_set, draft.cost.delta_j)

    return max(drafts, key=strength)


def _is_price(extra: Draft, draft: Draft) -> bool:
    """Return whether the extra work of the cheap side has the cause of a draft."""
    if extra.expensive == draft.expensive or not extra.rows or not draft.rows:
        return False
    is_done = _is_same_call(extra, draft) or _is_done_elsewhere(extra, draft)
    return is_done or _is_same_cause(extra, draft) or _follows(extra, draft)


def _is_same_cause(extra: Draft, draft: Draft) -> bool:
    a, b = extra.lead.cause, draft.lead.cause
    is_named = a.key is not None and (a.type in _SET or a.type == "layout")
    return is_named and (a.type, a.key, a.value_a, a.value_b) == (b.type, b.key, b.value_a, b.value_b)


def _is_same_call(extra: Draft, draft: Draft) -> bool:
    """Return whether both are in the two functions of a library to which the call paths of the draft part."""
    functions = _functions_of(draft)
    if functions is None:
        return False
    return _functions_of(extra) == functions or _functions_around(extra, [functions]) is not None


def _is_done_elsewhere(extra: Draft, draft: Draft) -> bool:
    """Return whether each program runs these operators alone, at another place: most of the extra ones by name."""
    if any(each.subject is None or each.subject.relation != "one_sided" for each in (extra, draft)):
        return False
    mine, theirs = (_computing(each) for each in (extra, draft))
    return sum((mine & theirs).values()) >= _MOST_ALIKE * sum(mine.values()) > 0


def _computing(draft: Draft) -> Counter[str]:
    """Return the operators of a draft that run kernels, by name."""
    run = draft.comparison.run(draft.expensive)
    ops = (op for number in draft.regions for op in ops_of(draft.comparison.by_id[number], draft.expensive))
    return Counter(run.ops[op].name for op in ops if run.index.kernels[op] and not is_view(run, op))


def _is_consequence(extra: Draft, draft: Draft) -> bool:
    """Return whether the expensive side only moves the results of a draft, by code that moves nothing for the other."""
    if extra.expensive != draft.expensive or extra.confirmed or draft.is_whole_cause or not draft.rows:
        return False
    return bool(extra.rows) and _has_same_code(extra) and _moves_results(extra, draft)


def _follows(extra: Draft, draft: Draft) -> bool:
    """Return whether the cheap side only moves the results of a draft, in its function or by code of both programs."""
    return (_has_same_code(extra) or _is_in_function(extra, draft)) and _moves_results(extra, draft)


def _has_same_code(draft: Draft) -> bool:
    """Return whether the other program runs an operator at the innermost line of a draft, or at one of its text."""
    subject, side = draft.subject, draft.expensive
    op = None if subject is None else subject.op(side)
    if op is None:
        return False
    run, other = draft.comparison.run(side), draft.comparison.run(other_side(side))
    frame = next(reversed(run.call_path(op)), None)
    return frame is not None and any(
        _line(run, frame) == _line(other, other.frames[at]) for at in other.index.ops_by_frame if at is not None
    )


def _line(run: Run, frame: Frame) -> object:
    """Return the text of a line, or else its number."""
    return run.line_text(frame.file, frame.line) or (frame.file, frame.line)


def _is_in_function(extra: Draft, draft: Draft) -> bool:
    """Return whether the extra work is in the function that does the draft's work on that side."""
    mine, function = extra.work.functions.of(extra.expensive), draft.work.functions.of(extra.expensive)
    if mine is None or function is None:
        return False
    return (mine.place.file, mine.place.function) == (function.place.file, function.place.function)


def _moves_results(extra: Draft, draft: Draft) -> bool:
    """Return whether every region of the extra work reads a result of a draft, and the other side only has views."""
    comparison, side = draft.comparison, extra.expensive
    regions = [comparison.by_id[number] for number in extra.regions]
    made = _results(comparison, side, [comparison.by_id[number] for number in draft.regions])
    is_free = all(_has_only_views(comparison, other_side(side), region) for region in regions)
    return bool(regions) and is_free and all(_reads(comparison, side, region, made) for region in regions)


def _has_only_views(comparison: Comparison, side: SideName, region: Region) -> bool:
    return all(is_view(comparison.run(side), op) for op in ops_of(region, side))


def _results(comparison: Comparison, side: SideName, regions: Sequence[Region]) -> set[int]:
    """Return the values that operators of regions compute, and the views of these values."""
    run = comparison.run(side)
    ops = {op for region in regions for op in ops_of(region, side)}
    found: set[int] = set()
    for op in run.ops:
        if op.id in ops or (found.intersection(op.inputs) and is_view(run, op.id)):
            found |= {*op.outputs, *op.writes}
    return found


def _reads(comparison: Comparison, side: SideName, region: Region, values: set[int]) -> bool:
    run = comparison.run(side)
    return any(values.intersection(run.ops[op].inputs) for op in ops_of(region, side))


def _subtract(draft: Draft, extra: Draft) -> Draft:
    """Return a draft with the extra work of the cheap side as its price."""
    place = extra.subject.place(extra.expensive) if extra.subject is not None else None
    price = Price(extra.name, extra.cost.delta_j, place or extra.lead.cause.locations.of(extra.expensive))
    if draft.is_whole_cause:  # its whole step was measured with the change, and so was the price
        rows, regions = (*draft.rows, *extra.rows), (*draft.regions, *extra.regions)
        return replace(draft, rows=rows, regions=regions, prices=(*draft.prices, price, *extra.prices))
    energies = Pair(*(add_known((draft.cost.energies.of(side), extra.cost.energies.of(side))) for side in SIDES))
    times_s = Pair(*(_sum(draft.cost.times_s.of(side), extra.cost.times_s.of(side)) for side in SIDES))
    cost = make_cost(
        draft.comparison,
        draft.expensive,
        energies,
        delta_j=draft.cost.delta_j - extra.cost.delta_j,
        p_value=draft.cost.p_value,
        times_s=times_s,
        difference=draft.cost.difference,
    )
    return replace(
        draft,
        cost=cost,
        regions=(*draft.regions, *extra.regions),
        rows=(*draft.rows, *extra.rows),
        holds_around=draft.holds_around or extra.holds_around,
        prices=(*draft.prices, price, *extra.prices),
        proof=_net(draft, price),
    )


def _net(draft: Draft, price: Price) -> Proof:
    """Return the proof with the saving less the price; a trial of whole steps has measured the price already."""
    proof = draft.proof
    made = proof.confirmation
    if made is None or made.saved_j is None or any(trial.of_step and trial.explains for trial in made.trials):
        return proof
    saved_j = max(0.0, made.saved_j - price.delta_j)
    total = draft.comparison.costs[draft.expensive].total
    return replace(proof, confirmation=replace(made, saved_j=saved_j, saved_share=share_of(saved_j, total)))


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other
