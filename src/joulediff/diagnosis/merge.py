"""Merge drafts of one cause: a setting that makes ten rows more expensive is one finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.diagnosis.draft import Draft, Investigation
from joulediff.model.energy import add_known, higher_over_lower
from joulediff.model.finding import Cost, Proof, ProofWord, weakest_proof
from joulediff.model.pair import SIDES, Pair

# A merged finding is confirmed if at least this share of its extra energy is.
CONFIRMED_SHARE = 0.9


def merge_same_causes(work: Investigation) -> None:
    """Replace the drafts of one cause by one draft, and sort all drafts by their extra energy."""
    groups: dict[object, list[Draft]] = {}
    for draft in work.drafts:
        is_single = draft.is_whole_cause or not draft.rows
        key = id(draft) if is_single else identity(draft)
        groups.setdefault(key, []).append(draft)
    work.drafts = sorted(map(merge, groups.values()), key=lambda draft: -draft.cost.delta_j)


def identity(draft: Draft) -> object:
    """Return a key that drafts of one cause share."""
    cause, side = draft.lead.cause, draft.expensive
    if draft.call_key is not None:
        return (draft.call_key, side, draft.verdict)
    if draft.lead.kind == "unknown" and draft.set_aside:  # one of these settings may be the cause of all such rows
        return ("setting", draft.set_aside, side, draft.verdict)
    is_configured = cause.type == "call_path" and draft.lead.kind == "misconfiguration"
    is_local = draft.lead.kind == "unknown" or cause.type in ("call_path", "redundancy")
    if is_local and not is_configured:
        return (cause.type, cause.key, cause.locations.of(side), side, draft.name)
    # A setting or a value of the state is one cause, wherever the operators run.
    location = None if cause.type in ("setting", "state") else cause.locations.of(side)
    return (cause.type, cause.key, cause.value_a, cause.value_b, location, side, draft.verdict)


def merge(drafts: Sequence[Draft]) -> Draft:
    """Return one draft for several with the same cause; name and cause are those of the draft with the most energy."""
    if len(drafts) == 1:
        return drafts[0]
    ordered = sorted(drafts, key=lambda draft: -draft.cost.delta_j)
    first = ordered[0]
    return _join(first, ordered, name=f"{first.name}, {len(ordered) - 1} more", is_confirmed=_is_confirmed(ordered))


def add_row_to(draft: Draft, row: Draft) -> Draft:
    """Return a draft with one more row, which was tried with it: its name, cause and confirmation stay."""
    return _join(draft, (draft, row), name=draft.name, is_confirmed=draft.confirmed)


def join(speaker: Draft, drafts: Sequence[Draft]) -> Draft:
    """Return one draft for several of one cause, with the cause of `speaker` and the verdict on most of the energy."""
    ordered = (speaker, *sorted((each for each in drafts if each is not speaker), key=lambda each: -each.cost.delta_j))
    if len(ordered) == 1:
        return speaker
    most = max(ordered, key=lambda draft: draft.cost.delta_j)
    joined = _join(speaker, ordered, name=f"{most.name}, {len(ordered) - 1} more", is_confirmed=_is_confirmed(ordered))
    waste_j = sum(draft.cost.delta_j for draft in ordered if draft.verdict == "waste")
    return replace(joined, verdict="waste" if waste_j >= joined.cost.delta_j / 2 else "tradeoff")


def _is_confirmed(drafts: Sequence[Draft]) -> bool:
    """Return whether the first draft, and most of the energy of all of them, is confirmed."""
    confirmed_j = sum(draft.cost.delta_j for draft in drafts if draft.confirmed)
    return drafts[0].confirmed and confirmed_j >= CONFIRMED_SHARE * sum(draft.cost.delta_j for draft in drafts)


def _join(first: Draft, drafts: Sequence[Draft], *, name: str, is_confirmed: bool) -> Draft:
    costs = [draft.cost for draft in drafts]
    is_one_place = all(draft.where == first.where for draft in drafts)
    return replace(
        first,
        name=name,
        where=first.where if is_one_place else "",
        regions=tuple(number for draft in drafts for number in draft.regions),
        rows=tuple(number for draft in drafts for number in draft.rows),
        holds_around=any(draft.holds_around for draft in drafts),
        prices=tuple(price for draft in drafts for price in draft.prices),
        cost=_sum_costs(costs),
        proof=_join_proofs(first, drafts, is_confirmed=is_confirmed),
    )


def _sum_costs(costs: Sequence[Cost]) -> Cost:
    energies = Pair(*(add_known(cost.energies.of(side) for cost in costs) for side in SIDES))
    return Cost(
        energy_a=energies.a,
        energy_b=energies.b,
        delta_j=sum(cost.delta_j for cost in costs),
        ratio=higher_over_lower(*energies),
        share_of_run=_sum([cost.share_of_run for cost in costs]),
        p_value=min((cost.p_value for cost in costs if cost.p_value is not None), default=None),
        time_a_s=_sum([cost.time_a_s for cost in costs]),
        time_b_s=_sum([cost.time_b_s for cost in costs]),
        difference=max((cost.difference for cost in costs if cost.difference is not None), default=None),
    )


def _join_proofs(first: Draft, drafts: Sequence[Draft], *, is_confirmed: bool) -> Proof:
    word: ProofWord = "observed"
    if is_confirmed:
        word = weakest_proof(draft.proof.word for draft in drafts if draft.confirmed)
    if first.proof.confirmation is None:
        return Proof(word, None)
    made = [draft.proof.confirmation for draft in drafts if draft.proof.confirmation is not None]
    saved_j, share = _sum([each.saved_j for each in made]), _sum([each.saved_share for each in made])
    return Proof(word, replace(first.proof.confirmation, saved_j=saved_j, saved_share=share))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
