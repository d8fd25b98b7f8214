"""A finding, written down: what it costs, whether it is a waste or a trade-off, and what its trials promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from joulediff.diagnosis.comparison import Comparison, costliest, ops_of, to_place
from joulediff.diagnosis.evidence.host import Around, Waits, launch_energy
from joulediff.diagnosis.evidence.redundancy import call_behind
from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.significance import RowComparison, joules
from joulediff.diagnosis.trials.trial import Trials, saved, without_waiting
from joulediff.frameworks.framework import framework_of, is_copy_call, operators_of, setting_read_by, switches_of
from joulediff.frameworks.jobs import LiveProgram
from joulediff.matching import is_view
from joulediff.model.diff import Thresholds
from joulediff.model.energy import Energy, add
from joulediff.model.finding import Cause, Confirmation, Cost, Finding, FindingKind, Proof, Region, Verdict, Work
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.model.signature import difference

# So many operators for one are that one, written out.
_WRITTEN_OUT = 3


def write_finding(
    sides: Comparison,
    row: RowComparison,
    region: Region,
    lead: Lead,
    trials: Trials | None,
    limits: Thresholds,
    *,
    confirmed: bool = False,
) -> Finding:
    """Return a row of a diff as a finding; `region` is a typical one of it."""
    a, b = sides.costs["a"], sides.costs["b"]
    time_a_s = a.time_s(op for each in row.members for op in each.a)
    time_b_s = b.time_s(op for each in row.members for op in each.b)
    gap = _difference(sides, row)
    return Finding(
        id="",
        kind=lead.kind,
        verdict=_judge(row, (time_a_s, time_b_s), gap, trials, limits),
        expensive=row.expensive,
        region=row.group.name,
        where=row.group.where,
        regions=row.group.regions,
        cost=Cost(
            energy_a=row.energy_a,
            energy_b=row.energy_b,
            delta_j=abs(row.delta_j),
            ratio=_ratio(row.energy_a, row.energy_b),
            share_of_run=_share(abs(row.delta_j), sides.costs[row.expensive].total),
            p_value=row.p_value,
            time_a_s=time_a_s,
            time_b_s=time_b_s,
            difference=gap,
        ),
        work=Work(
            ops_a=tuple(sides.a.ops[op].name for op in region.a),
            ops_b=tuple(sides.b.ops[op].name for op in region.b),
            kernels_a=a.names(region.a),
            kernels_b=b.names(region.b),
            path_a=_path(sides, "a", region),
            path_b=_path(sides, "b", region),
        ),
        cause=lead.cause,
        proof=Proof(
            confirmed=confirmed,
            confirmation=None if trials is None else _confirm(sides, row, trials, confirmed=confirmed),
        ),
        suggestion=suggest(
            lead.kind,
            lead.cause,
            row.expensive,
            op=_name_known(sides, row, region),
            written_out=_count_written(sides, row, region, lead),
        ),
        count=len(row.group.regions),
    )


def _name_known(sides: Comparison, row: RowComparison, region: Region) -> str:
    names = (sides.run(row.expensive).ops[op].name for op in ops_of(region, row.expensive))
    return next((name for name in names if framework_of(name) is not None), "")


def _count_written(sides: Comparison, row: RowComparison, region: Region, lead: Lead) -> int:
    """Return how many operators stand for one of the other side, where a call of one of them is the cause; else 0."""
    mine, theirs = (
        [sides.run(side).ops[op].name for op in ops_of(region, side) if not is_view(sides.run(side), op)]
        for side in (row.expensive, other_side(row.expensive))
    )
    is_one = any(str(lead.cause.key).strip("_") in name for name in mine)
    return len(mine) if lead.by_call and is_one and len(mine) >= _WRITTEN_OUT and len(theirs) == 1 else 0


def write_waiting(
    sides: Comparison, around: Around, waits: Waits, live: Mapping[SideName, LiveProgram], limits: Thresholds
) -> Finding:
    """Return the finding on a program that waits for its device."""
    run = sides.run(around.expensive)
    key = call_behind(run, waits.op, waits.frame)
    place = to_place(run, waits.frame)
    counts = dict(zip(SIDES, (waits.count_a, waits.count_b), strict=True))
    evidence = (f"A waits {waits.count_a} times a step for a device, B {waits.count_b} times",)
    here, there = (place, None) if around.expensive == "a" else (None, place)
    cause = Cause("host", key, counts["a"], counts["b"], here, there, evidence)
    trial = without_waiting(sides, around.expensive, place, live, limits)
    total = sides.costs[around.expensive].total
    confirmation = None
    if trial is not None:
        saved_j = None
        if trial.explains and trial.before is not None and trial.after is not None:
            saved_j = trial.before.joules - trial.after.joules
        confirmation = Confirmation((trial,), saved_j, None if saved_j is None else _share(saved_j, total))
    name = (run.ops[waits.op].name,)
    return Finding(
        id="",
        kind="host",
        verdict="waste",
        expensive=around.expensive,
        region=f"idle, waiting in {key}",
        where="",
        regions=(),
        cost=Cost(
            energy_a=around.energy_a,
            energy_b=around.energy_b,
            delta_j=around.delta_j,
            ratio=_ratio(around.energy_a, around.energy_b),
            share_of_run=_share(around.delta_j, total),
            p_value=None,
            time_a_s=None if sides.a.measurement is None else sides.a.measurement.step_s,
            time_b_s=None if sides.b.measurement is None else sides.b.measurement.step_s,
            difference=None,
        ),
        work=Work(
            ops_a=name if around.expensive == "a" else (),
            ops_b=name if around.expensive == "b" else (),
            kernels_a=(),
            kernels_b=(),
            path_a=(),
            path_b=(),
        ),
        cause=cause,
        proof=Proof(
            confirmed=trial is not None and trial.explains,
            confirmation=confirmation,
        ),
        suggestion=suggest("host", cause, around.expensive),
    )


def add_around(sides: Comparison, finding: Finding, around: Around, why: str) -> Finding:
    """Return a finding with the energy around its operators: the host's work with them, or a device that waits."""
    energy_a, energy_b = (
        add((i, part) for i, part in enumerate(parts) if part is not None)
        for parts in ((finding.cost.energy_a, around.energy_a), (finding.cost.energy_b, around.energy_b))
    )
    delta_j = abs(joules(energy_a) - joules(energy_b))
    note = f"{why}: its energy, and that of an idle device, is counted in"
    confirmation, total = finding.proof.confirmation, sides.costs[finding.expensive].total
    if confirmation is not None and confirmation.saved_j is not None:  # without these operators neither is there
        confirmation = replace(confirmation, saved_j=delta_j, saved_share=_share(delta_j, total))
    return replace(
        finding,
        proof=replace(finding.proof, confirmation=confirmation),
        cost=replace(
            finding.cost,
            energy_a=energy_a,
            energy_b=energy_b,
            delta_j=delta_j,
            ratio=_ratio(energy_a, energy_b),
            share_of_run=_share(delta_j, total),
        ),
        cause=replace(finding.cause, evidence=(*finding.cause.evidence, note)),
    )


def _judge(
    row: RowComparison,
    times: tuple[float | None, float | None],
    gap: float | None,
    trials: Trials | None,
    limits: Thresholds,
) -> Verdict:
    slow_s, fast_s = times if row.expensive == "a" else times[::-1]
    if trials is not None and trials.times is not None:  # weighed one after the other, they tell better
        slow_s, fast_s = trials.times
    if gap is not None and gap > limits.difference:
        return "tradeoff"
    if slow_s is not None and fast_s is not None and fast_s > slow_s * (1 + limits.slower):
        return "tradeoff"
    return "waste"


def _difference(sides: Comparison, row: RowComparison) -> float | None:
    """Return how far the outputs of the two sides lie apart."""
    found = (
        difference(sides.a.signature_of(x), sides.b.signature_of(y)) for each in row.members for x, y in each.outputs
    )
    return max((gap for gap in found if gap is not None), default=None)


def _confirm(sides: Comparison, row: RowComparison, trials: Trials, *, confirmed: bool) -> Confirmation | None:
    best = next((trial for trial in reversed(trials.made) if trial.explains), None)
    if not trials.made:
        return None
    if best is None or not confirmed:
        return Confirmation(tuple(trials.made))
    side, costs = row.expensive, sides.costs[row.expensive]
    regions: Sequence[Region] = row.members
    if trials.region not in sides.regions:  # several regions as one
        regions = [trials.region]
    elif trials.region not in row.members:  # work that one side lacks, weighed with what reads it: that, and its like
        readers = sides.readers_of((op for region in row.members for op in ops_of(region, side)), side)
        alike = next(group.regions for group in sides.groups if trials.region.id in group.regions)
        regions = [region for region in readers if region.id in alike]
    ops, others = (
        sorted({op for region in regions for op in sides.slice_of(region, each)}) for each in (side, other_side(side))
    )
    gain = saved(best, costs.of(ops))
    saved_j = None
    if gain is not None:
        fewer_s = (costs.time_s(ops) or 0.0) - (sides.costs[other_side(side)].time_s(others) or 0.0)
        saved_j = gain.joules + launch_energy(sides, side, len(ops) - len(others), fewer_s)
        # Replays of a disturbed machine may promise more than there is.
        saved_j = min(saved_j, most_saved(sides, side, row.delta_j))
    return Confirmation(tuple(trials.made), saved_j, None if saved_j is None else _share(saved_j, costs.total))


def saved_by_trial(finding: Finding) -> float:
    """Return what a trial saved, weighed as it ran, for all regions of a finding; nothing where none explains it."""
    trials = finding.proof.trials if finding.proof.confirmed else ()
    found = next((trial for trial in trials if trial.explains), None)
    each_j = 0.0 if found is None else joules(found.before) - joules(found.after)
    return each_j * (finding.count or len(finding.regions))


def most_saved(sides: Comparison, side: SideName, delta_j: float) -> float:
    """Return the most that a fix can save on a side: what it costs more, or what the whole steps lie apart."""
    mine, other = sides.costs[side].total, sides.costs[other_side(side)].total
    if mine is None or other is None:
        return joules(mine)
    return min(mine.joules, max(abs(delta_j), mine.joules - other.joules))


def _path(sides: Comparison, side: SideName, region: Region) -> tuple[Place, ...]:
    run, op = sides.run(side), costliest(sides, side, ops_of(region, side))
    if op is None:
        return ()
    return tuple(place for frame in run.call_path(op) if (place := to_place(run, frame)) is not None)


def _ratio(a: Energy | None, b: Energy | None) -> float | None:
    cheap_j = min(joules(a), joules(b))
    return max(joules(a), joules(b)) / cheap_j if cheap_j > 0 else None


def _share(part_j: float, total: Energy | None) -> float | None:
    return part_j / total.joules if total is not None and total.joules > 0 else None


T = TypeVar("T")


def suggest(kind: FindingKind, cause: Cause, expensive: SideName, *, op: str = "", written_out: int = 0) -> str:
    """Return one or two sentences; of what is unknown, where to look.

    `op` is the operator that the cause is about, where there is one. `written_out` is how many operators the
    expensive side has for one of the other, where the key is one of them.
    """
    here, there = _sides(cause.location_a, cause.location_b, expensive)
    mine, other = _sides(cause.value_a, cause.value_b, expensive)
    if kind == "unknown" or cause.key is None:
        return f"No cause was found. The costly call is {_at(here)}; compare the kernels of the two sides."
    if cause.type == "setting" and cause.key.endswith(".schedule"):
        return (
            f"Let the host sleep while it waits (it is {_say(mine)}{_where(here)}): "
            "call cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) before the device is used."
        )
    if cause.type == "setting":
        return f"Set {cause.key} to {_say(other)}; it is {_say(mine)}{_where(here)}."
    if cause.type == "layout" and is_copy_call(cause.key):
        return f"Leave out {cause.key}{_where(here)}: the other side reads the tensor as it lies, with {other}."
    if cause.type == "layout":
        return _layout(cause.key, mine, other, here, there, op)
    if cause.type == "redundancy":
        return f"Leave out {cause.key}{_where(here)}: the other side does without it."
    if cause.type == "host":
        return (
            f"Do not wait for the device there: {cause.key}{_where(here)} stops the program until it is done. "
            "Keep the numbers on the device and read them once, after the loop."
        )
    if written_out:
        return f"Call {other} in place of {written_out} operators{_where(here)}, as the other side does{_where(there)}."
    return _suggest_path(cause, kind, mine, other, here, there)


def find_fix(finding: Finding) -> dict[str, Setting] | None:
    """Return the settings that would mend a finding; None where it takes a change of code."""
    cause = finding.cause
    value = cause.values.of(other_side(finding.expensive))
    key = setting_read_by(cause.key or "") or cause.key or ""
    if finding.kind != "misconfiguration" or " and " in key:
        return None
    switches = switches_of(key)
    if cause.type == "setting" or key.startswith("config.") or (switches is not None and key == switches.gradients):
        return {key: value}
    return {f"env.{key}": value} if cause.type == "call_path" and key.isupper() else None


def _layout(key: str, mine: Setting, other: Setting, here: Place | None, there: Place | None, op: str) -> str:
    if key == "dtype":
        return f"Compute in {other} instead of {mine}: convert the tensor once, before the step{_where(here)}."
    if key == "memory_format":
        convert = operators_of(op).convert_format
        code = "" if convert is None else f": `{convert(str(other))}`"
        return f"Put the model and its inputs into {other} (they are {mine}){code}{_where(here)}."
    if key == "alignment":
        return f"Give the operator a tensor that begins at a multiple of 16 bytes{_where(here)}."
    return f"Give the operator {other} instead of {mine}{_where(here)}, as the other side does{_where(there)}."


def _suggest_path(
    cause: Cause, kind: FindingKind, mine: Setting, other: Setting, here: Place | None, there: Place | None
) -> str:
    switches = switches_of(cause.key or "")
    if switches is not None and (advice := switches.advice(cause.key or "", _where(here))) is not None:
        return advice
    if kind == "misconfiguration" and cause.key is not None:
        name = cause.key.removeprefix("config.").lstrip("_")  # _attn_implementation is given without
        return f"Set {name} to {_say(other)}; it is {_say(mine)}{_where(here)}."
    if cause.key != str(mine).rpartition(".")[2] and cause.key != str(
        mine
    ):  # a variable of the code decided, not what it calls
        return f"Set {cause.key} to {_say(other)}; it is {_say(mine)}{_where(here)}."
    if mine == other:
        return f"Write the call{_where(here)} as the other side does{_where(there)}."
    return f"Call {other} instead of {mine}{_where(here)}, as the other side does{_where(there)}."


def _sides(a: T, b: T, expensive: SideName) -> tuple[T, T]:
    return (a, b) if expensive == "a" else (b, a)


def _say(value: Setting) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _where(place: Place | None) -> str:
    return "" if place is None else f" ({_at(place)})"


def _at(place: Place | None) -> str:
    if place is None:
        return "not known"
    return f"{place.file}:{place.line}" + (f": `{place.text}`" if place.text else "")
