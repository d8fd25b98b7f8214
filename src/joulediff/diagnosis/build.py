"""Build drafts and findings: the cost of a difference, its verdict, its proof, and the record of all of it.

Every finding is made here, by `build_finding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.diagnosis.comparison import Comparison, costliest, function_of, ops_of, to_place
from joulediff.diagnosis.draft import NO_WORK, Draft, Investigation
from joulediff.diagnosis.evidence.host.busy_wait import BusyWait, busy_wait_lead, whole_step
from joulediff.diagnosis.evidence.host.host_lines import HostLine, host_line_lead, line_energies
from joulediff.diagnosis.evidence.host.idle_device import Around, Waits, launch_energy, wait_lead
from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.significance import RowComparison
from joulediff.diagnosis.trials.region_trials import RegionTrials
from joulediff.matching.rows import common_module
from joulediff.model.diff import Thresholds
from joulediff.model.energy import (
    Energy,
    add_known,
    difference_j,
    higher_over_lower,
    joules_of,
    saved_share,
    scale,
    share_of,
)
from joulediff.model.finding import Confirmation, Cost, Finding, Function, Proof, Region, Trial, Verdict, Work
from joulediff.model.pair import SIDES, Pair, SideName, other_side, pair_from
from joulediff.model.place import Place
from joulediff.model.signature import difference


def build_finding(draft: Draft, number: int) -> Finding:
    """Return a draft as a finding."""
    return Finding(
        id=str(number),
        kind=draft.lead.kind,
        verdict=draft.verdict,
        expensive=draft.expensive,
        region=draft.name,
        where=draft.where,
        regions=draft.regions,
        cost=draft.cost,
        work=draft.work,
        cause=draft.lead.cause,
        proof=draft.proof,
        suggestion=draft.lead.suggestion,
        count=draft.count,
        prices=draft.prices,
    )


def draft_row(work: Investigation, row: RowComparison, region: Region, lead: Lead) -> Draft:
    """Return the draft of a row; `region` is a typical one of it."""
    comparison = work.comparison
    ops = Pair(*([op for each in row.members for op in ops_of(each, side)] for side in SIDES))
    cost = make_cost(
        comparison,
        row.expensive,
        row.energies,
        delta_j=abs(row.delta_j),
        p_value=row.p_value,
        times_s=Pair(*(comparison.costs[side].time_s(ops.of(side)) for side in SIDES)),
        difference=_output_distance(comparison, row),
    )
    return Draft(
        comparison,
        work.limits,
        row.expensive,
        row.group.name,
        cost,
        lead,
        where=row.group.where,
        verdict=_judge(cost, row.expensive, work.limits),
        work=describe_work(comparison, region),
        regions=row.group.regions,
        count=len(row.group.regions),
    )


def draft_waits(work: Investigation, around: Around, waits: Waits) -> Draft:
    """Return the draft of a program that waits for its device."""
    comparison, side = work.comparison, around.expensive
    lead = wait_lead(comparison, around, waits)
    ops = pair_from(side, (comparison.run(side).ops[waits.op].name,), ())
    cost = make_cost(
        comparison,
        side,
        around.energies,
        delta_j=around.delta_j,
        times_s=_step_times_s(comparison),
    )
    return Draft(
        comparison,
        work.limits,
        side,
        f"idle, waiting in {lead.cause.key}",
        cost,
        lead,
        work=replace(NO_WORK, ops_a=ops.a, ops_b=ops.b),
        live=work.live,
        holds_around=True,
    )


def draft_host_line(work: Investigation, line: HostLine, around: Around | None, part: float) -> Draft:
    """Return the draft of a line in which the host works or waits, with its part of the energy around operators."""
    comparison, side = work.comparison, line.expensive
    energies = line_energies(comparison, line, around, part)
    totals = Pair(*(comparison.costs[each].total for each in SIDES))
    cost = make_cost(
        comparison,
        side,
        energies,
        delta_j=min(abs(difference_j(*energies)), abs(difference_j(*totals))),
        times_s=_step_times_s(comparison),
    )
    return Draft(
        comparison,
        work.limits,
        side,
        f"host: {line.key}",
        cost,
        host_line_lead(line),
        live=work.live,
        holds_around=around is not None,
        host_line=line,
    )


def draft_busy_wait(work: Investigation, found: BusyWait) -> Draft:
    """Return the draft of a host that spins while it waits."""
    comparison, side = work.comparison, found.expensive
    cost = make_cost(
        comparison,
        side,
        found.energies,
        delta_j=found.delta_j,
        whole=whole_step(comparison, found),
        times_s=_step_times_s(comparison),
    )
    return Draft(
        comparison,
        work.limits,
        side,
        "cpu: spinning while it waits for a device",
        cost,
        busy_wait_lead(comparison, found),
        live=work.live,
        busy_wait=found,
    )


def make_cost(
    comparison: Comparison,
    expensive: SideName,
    energies: Pair[Energy | None],
    *,
    delta_j: float,
    whole: Energy | None = None,
    p_value: float | None = None,
    times_s: Pair[float | None],
    difference: float | None = None,
) -> Cost:
    """Return the cost of a difference; its share is that of the expensive side's step, or of `whole`."""
    if whole is None:
        whole = comparison.costs[expensive].total
    return Cost(
        energy_a=energies.a,
        energy_b=energies.b,
        delta_j=delta_j,
        ratio=higher_over_lower(*energies),
        share_of_run=share_of(delta_j, whole),
        p_value=p_value,
        time_a_s=times_s.a,
        time_b_s=times_s.b,
        difference=difference,
    )


def conclude(work: Investigation, row: RowComparison, draft: Draft) -> Draft:
    """Return the draft of a row after its trials, with its verdict and its proof."""
    trials = draft.trials
    if trials is None:
        return draft
    made = trials.made if draft.confirmed else (*draft.failed, *trials.made)
    confirmation = None
    if made:
        saved_j = _saving(draft.comparison, row, trials) if draft.confirmed else None
        confirmation = make_confirmation(draft, made, saved_j)
    verdict = _judge(draft.cost, draft.expensive, work.limits, trials.times)
    return replace(draft, verdict=verdict, proof=replace(draft.proof, confirmation=confirmation))


def make_confirmation(draft: Draft, trials: Sequence[Trial], saved_j: float | None) -> Confirmation:
    """Return the record of trials, with their saving as a share of the expensive side's step."""
    total = draft.comparison.costs[draft.expensive].total
    return Confirmation(tuple(trials), saved_j, None if saved_j is None else share_of(saved_j, total))


def make_confirmation_of_step(
    comparison: Comparison, side: SideName, trials: Sequence[Trial], saved_j: float
) -> Confirmation:
    """Return the record of trials of the whole step, with the saving if there is one."""
    if saved_j <= 0:
        return Confirmation(tuple(trials))
    return Confirmation(tuple(trials), saved_j, share_of(saved_j, comparison.costs[side].total))


def add_around(draft: Draft, around: Around, why: str) -> Draft:
    """Return a draft with the energy around its operators: the host's work for them, or a device that waits."""
    energies = Pair(*(add_known((draft.cost.energies.of(side), around.energies.of(side))) for side in SIDES))
    delta_j = abs(difference_j(*energies))
    cost = make_cost(
        draft.comparison,
        draft.expensive,
        energies,
        delta_j=delta_j,
        p_value=draft.cost.p_value,
        times_s=draft.cost.times_s,
        difference=draft.cost.difference,
    )
    note = f"{why}: its energy, and that of an idle device, is counted in"
    proof = draft.proof
    if _saves_operators(proof):  # without the operators, the energy around them is saved as well
        proof = replace(proof, confirmation=make_confirmation(draft, proof.trials, delta_j))
    return replace(draft, cost=cost, proof=proof, lead=draft.lead.with_evidence(note), holds_around=True)


def saved_by_trial(draft: Draft) -> float:
    """Return the measured saving of the first trial that explains a draft, for all of its regions; 0 without one."""
    trials = draft.proof.trials if draft.confirmed else ()
    found = next((trial for trial in trials if trial.explains), None)
    each_j = 0.0 if found is None else difference_j(found.before, found.after)
    return each_j * (draft.count or len(draft.regions))


def max_saving_j(comparison: Comparison, side: SideName, delta_j: float) -> float:
    """Return the cap on a saving: the row's extra cost or the whole-step difference, whichever is larger."""
    mine, other = comparison.costs[side].total, comparison.costs[other_side(side)].total
    if other is None:
        return joules_of(mine)
    return min(joules_of(mine), max(abs(delta_j), difference_j(mine, other)))


def saved(trial: Trial, recorded: Energy | None) -> Energy | None:
    """Return the saving of a recorded energy, at the share that the trial saved."""
    share = saved_share(trial.before, trial.after)
    return None if share is None else scale(recorded, share)


def _judge(
    cost: Cost, expensive: SideName, limits: Thresholds, measured_s: tuple[float, float] | None = None
) -> Verdict:
    """Return whether the cheap side is as good: its outputs are equal and it is not slower."""
    slow_s, fast_s = cost.times_s.of(expensive), cost.times_s.of(other_side(expensive))
    if measured_s is not None:  # times measured one after the other compare better than recorded ones
        slow_s, fast_s = measured_s
    if cost.difference is not None and cost.difference > limits.difference:
        return "tradeoff"
    if slow_s is not None and fast_s is not None and fast_s > slow_s * (1 + limits.slower):
        return "tradeoff"
    return "waste"


def _output_distance(comparison: Comparison, row: RowComparison) -> float | None:
    """Return the largest distance between the outputs of the two sides."""
    found = (
        difference(comparison.a.signature_of(x), comparison.b.signature_of(y))
        for each in row.members
        for x, y in each.outputs
    )
    return max((distance for distance in found if distance is not None), default=None)


def _saving(comparison: Comparison, row: RowComparison, trials: RegionTrials) -> float | None:
    """Return the expected saving of a confirmed row in a step."""
    best = next((trial for trial in reversed(trials.made) if trial.explains), None)
    if best is None:
        return None
    side, other = row.expensive, other_side(row.expensive)
    regions = _regions_of_trial(comparison, row, trials)
    ops, others = (
        sorted({op for region in regions for op in comparison.runnable_ops(region, each)}) for each in (side, other)
    )
    costs = comparison.costs[side]
    gain = saved(best, costs.of(ops))
    if gain is None:
        return None
    fewer_s = (costs.time_s(ops) or 0.0) - (comparison.costs[other].time_s(others) or 0.0)
    saved_j = joules_of(gain) + launch_energy(comparison, side, len(ops) - len(others), fewer_s)
    # Trials on a disturbed machine may promise too much.
    return min(saved_j, max_saving_j(comparison, side, row.delta_j))


def _regions_of_trial(comparison: Comparison, row: RowComparison, trials: RegionTrials) -> Sequence[Region]:
    """Return the regions to which the result of the trials applies."""
    if trials.region not in comparison.regions:  # several regions as one
        return [trials.region]
    if trials.region in row.members:
        return row.members
    # Work that one side lacks was measured with the region that reads it, so the trial applies to such readers.
    ops = (op for region in row.members for op in ops_of(region, row.expensive))
    similar = next(group.regions for group in comparison.groups if trials.region.id in group.regions)
    return [region for region in comparison.readers_of(ops, row.expensive) if region.id in similar]


def _saves_operators(proof: Proof) -> bool:
    confirmation = proof.confirmation
    if confirmation is None or confirmation.saved_j is None:
        return False
    # A trial of whole steps has measured the energy around operators already.
    return not any(trial.of_step for trial in confirmation.trials)


def describe_work(comparison: Comparison, region: Region) -> Work:
    """Return the operators, kernels and call paths of a region."""
    a, b = comparison.costs["a"], comparison.costs["b"]
    return Work(
        ops_a=tuple(comparison.a.ops[op].name for op in region.a),
        ops_b=tuple(comparison.b.ops[op].name for op in region.b),
        kernels_a=a.names(region.a),
        kernels_b=b.names(region.b),
        path_a=_path(comparison, "a", region),
        path_b=_path(comparison, "b", region),
        function_a=_function(comparison, "a", region),
        function_b=_function(comparison, "b", region),
    )


def _path(comparison: Comparison, side: SideName, region: Region) -> tuple[Place, ...]:
    run, op = comparison.run(side), costliest(comparison, side, ops_of(region, side))
    if op is None:
        return ()
    return tuple(place for frame in run.call_path(op) if (place := to_place(run, frame)) is not None)


def _function(comparison: Comparison, side: SideName, region: Region) -> Function | None:
    ops = ops_of(region, side)
    place = function_of(comparison, side, ops)
    return None if place is None else Function(place, common_module(comparison.run(side), ops))


def _step_times_s(comparison: Comparison) -> Pair[float | None]:
    measured = (comparison.run(side).measurement for side in SIDES)
    return Pair(*(None if each is None else each.step_s for each in measured))
