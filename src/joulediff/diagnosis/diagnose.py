"""Two runs in, a diff out: conditions first, then rows, then a cause and its proof for each row that differs.

Nothing is claimed that was not tested: joules of runs that were not measured alike have no verdict, and a difference
that does not show again when both sides are weighed once more is no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from joulediff.diagnosis.assemble import Outcome, assemble
from joulediff.diagnosis.causes import Lead, add_evidence, find_leads, make_subject
from joulediff.diagnosis.conditions import compare_conditions
from joulediff.diagnosis.detect import SPREAD, Compared, compare_rows, is_different, joules
from joulediff.diagnosis.host import READS, find_host_waste
from joulediff.diagnosis.merge import identity, join_leads, merge
from joulediff.diagnosis.redundancy import call_behind
from joulediff.diagnosis.sides import SIDES, Sides, costliest, ops_of, other_side, to_place
from joulediff.diagnosis.suggest import suggest
from joulediff.diagnosis.trials import Lab, Trials, differ, explain, saved
from joulediff.diffs import Diff, RowVerdict, Thresholds
from joulediff.findings import Cause, Confirmation, Finding, Place, Region, SideName, Verdict
from joulediff.matching import TOLERANCE, match
from joulediff.runs import Run
from joulediff.stability.watch import Watch

# So many rows are tried; the others are told by their evidence alone.
TRIED = 6


def diagnose(
    a: Run,
    b: Run,
    *,
    thresholds: Thresholds | None = None,
    tolerance: float = TOLERANCE,
    labs: Mapping[SideName, Lab] = MappingProxyType({}),
    watch: Watch | None = None,
    interleaved: bool = False,
) -> Diff:
    """Return what differs between two runs, and why.

    `labs` are the programs that are still there to be tried with; without them there are causes and no proofs. Runs
    that were measured in turns, `interleaved`, need no allowance for what changes from one recording to the next.
    """
    limits, tell = thresholds or Thresholds(), watch or Watch()
    conditions = compare_conditions(a, b)
    tell.stage("matching")
    sides = Sides(a, b, match(a, b, tolerance=tolerance))
    rows = compare_rows(sides)
    work = _Diagnosis(sides, limits, labs, tell)
    if not any(each.serious for each in conditions):
        work.investigate(rows)
    outcome = Outcome(work.findings, work.row_of, work.settled, work.notes)
    return assemble(sides, rows, outcome, conditions, limits, spread=0.0 if interleaved else SPREAD["metered"])


@dataclass(slots=True)
class _Diagnosis:
    """Findings under way. `settled` says what became of a row that is no finding."""

    sides: Sides
    limits: Thresholds
    labs: Mapping[SideName, Lab]
    watch: Watch
    findings: list[Finding] = field(default_factory=list)
    row_of: dict[int, str] = field(default_factory=dict)
    settled: dict[int, RowVerdict] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def investigate(self, rows: Sequence[Compared]) -> None:
        total_j = max(joules(self.sides.costs[side].total) for side in SIDES)
        found = [(at, row) for at, row in enumerate(rows) if is_different(row, self.limits, total_j)]
        found.sort(key=lambda each: -abs(each[1].delta_j))
        drafts: list[tuple[int, Finding]] = []
        waiting = self._host()
        for place, (at, row) in enumerate(found):
            self.watch.stage(f"diagnosing: {place + 1} of {len(found)} differences", place / len(found))
            if waiting is not None and self._is_read(row):
                self.settled[at] = "changed"
                continue
            made = self._diagnose(row, tried=place < TRIED)
            if made is None:
                self.settled[at] = "changed"
            else:
                drafts.append((at, made))
        self._number(drafts, waiting)

    def _is_read(self, row: Compared) -> bool:
        """Return whether a row is what a wait reads: part of the finding on the host."""
        run = self.sides.run(row.expensive)
        return all(run.ops[op].name in READS for region in row.members for op in ops_of(region, row.expensive))

    def _diagnose(self, row: Compared, *, tried: bool) -> Finding | None:
        """Return what a row amounts to; None where it is not there when looked at again, or pays elsewhere."""
        region = self._typical(row)
        subject_region, weighed_region = region, self._region_to_weigh(row, region)
        if weighed_region is None or not self._pays(row):
            weighed_region = weighed_region or region
            if not self._pays(row):
                return None
        subject = make_subject(self.sides, subject_region, row.expensive)
        if subject.op(row.expensive) is None:
            return None
        trials = Trials(self.sides, row.expensive, weighed_region, self.labs, self.limits)
        is_live = tried and row.expensive in self.labs and bool(ops_of(weighed_region, other_side(row.expensive)))
        if is_live and trials.repeats() is False:
            self.notes.append(f"{row.group.name}: the difference did not show again when both sides were weighed")
            return None
        leads = find_leads(subject, self.labs if tried else {})
        lead, confirmed = self._try(trials, leads) if is_live else (leads[0], False)
        if not is_live:
            why = "the programs cannot be run again" if not self.labs else "others cost more, and were tried first"
            lead = replace(lead, cause=add_evidence(lead.cause, f"not tried: a change was not measured ({why})"))
        return self._write(row, region, lead, trials, confirmed=confirmed)

    def _typical(self, row: Compared) -> Region:
        """Return the region of a row that costs as much as most of them do."""
        costs = self.sides.costs[row.expensive]
        members = sorted(row.members, key=lambda region: joules(costs.of(ops_of(region, row.expensive))))
        return members[len(members) // 2]

    def _region_to_weigh(self, row: Compared, region: Region) -> Region | None:
        """Return a region that can be compared as it is run: of work that one side lacks, that which reads it."""
        if ops_of(region, other_side(row.expensive)):
            return region
        readers = self.sides.readers_of(ops_of(region, row.expensive), row.expensive)
        return readers[0] if readers else None

    def _pays(self, row: Compared) -> bool:
        """Return whether work that one side lacks costs more than it saves in what reads it."""
        cheap = other_side(row.expensive)
        if any(ops_of(region, cheap) for region in row.members):
            return True
        ops = [op for region in row.members for op in ops_of(region, row.expensive)]
        readers = self.sides.readers_of(ops, row.expensive)
        mine = self.sides.costs[row.expensive].of(op for r in readers for op in ops_of(r, row.expensive))
        other = self.sides.costs[cheap].of(op for r in readers for op in ops_of(r, cheap))
        gained_j = max(0.0, joules(other) - joules(mine))
        return abs(row.delta_j) > gained_j * (1 + self.limits.threshold)

    def _try(self, trials: Trials, leads: Sequence[Lead]) -> tuple[Lead, bool]:
        """Return the lead whose change explains the difference, or the first one."""
        settings = [lead for lead in leads if lead.cause.type == "setting"]
        for lead in leads:
            if explain(trials, lead.suspects):
                return lead, True
        if len(settings) > 1:
            together = explain(trials, [suspect for lead in settings for suspect in lead.suspects])
            keys = {suspect.text for suspect in together}
            chosen = [lead for lead in settings if lead.suspects[0].text in keys]
            if chosen:
                return join_leads(chosen), True
        return leads[0], False

    def _write(self, row: Compared, region: Region, lead: Lead, trials: Trials, *, confirmed: bool) -> Finding:
        a, b = self.sides.costs["a"], self.sides.costs["b"]
        ops_a = [op for each in row.members for op in each.a]
        ops_b = [op for each in row.members for op in each.b]
        total = self.sides.costs[row.expensive].total
        cheap_j = min(joules(row.energy_a), joules(row.energy_b))
        times = (a.time_s(ops_a), b.time_s(ops_b))
        gap = self._difference(row)
        return Finding(
            id="",
            kind=lead.kind,
            verdict=self._judge(row, times, gap),
            expensive=row.expensive,
            region=row.group.name,
            where=row.group.where,
            regions=row.group.regions,
            energy_a=row.energy_a,
            energy_b=row.energy_b,
            delta_j=abs(row.delta_j),
            ratio=max(joules(row.energy_a), joules(row.energy_b)) / cheap_j if cheap_j > 0 else None,
            share_of_run=abs(row.delta_j) / total.joules if total is not None and total.joules > 0 else None,
            p_value=row.p_value,
            time_a_s=times[0],
            time_b_s=times[1],
            difference=gap,
            ops_a=tuple(self.sides.a.ops[op].name for op in region.a),
            ops_b=tuple(self.sides.b.ops[op].name for op in region.b),
            kernels_a=a.names(region.a),
            kernels_b=b.names(region.b),
            path_a=self._path("a", region),
            path_b=self._path("b", region),
            cause=lead.cause,
            confirmed=confirmed,
            confirmation=self._confirm(row, trials, confirmed=confirmed),
            suggestion=suggest(lead.kind, lead.cause, row.expensive),
        )

    def _judge(self, row: Compared, times: tuple[float | None, float | None], gap: float | None) -> Verdict:
        slow_s, fast_s = times if row.expensive == "a" else times[::-1]
        if gap is not None and gap > self.limits.difference:
            return "tradeoff"
        if slow_s is not None and fast_s is not None and fast_s > slow_s * (1 + self.limits.slower):
            return "tradeoff"
        return "waste"

    def _difference(self, row: Compared) -> float | None:
        """Return how far the outputs of the two sides lie apart."""
        a, b = self.sides.a, self.sides.b
        found = (differ(a.signature_of(x), b.signature_of(y)) for each in row.members for x, y in each.outputs)
        return max((gap for gap in found if gap is not None), default=None)

    def _confirm(self, row: Compared, trials: Trials, *, confirmed: bool) -> Confirmation | None:
        if not trials.made:
            return None
        total = self.sides.costs[row.expensive].total
        best = next((trial for trial in reversed(trials.made) if trial.explains), None)
        if best is None or not confirmed:
            return Confirmation(tuple(trials.made))
        costs = self.sides.costs[row.expensive]
        if trials.region in row.members:
            regions: Sequence[Region] = row.members
        else:  # work that one side lacks, weighed with what reads it
            regions = self.sides.readers_of((op for r in row.members for op in ops_of(r, row.expensive)), row.expensive)
        ops = sorted({op for region in regions for op in self.sides.slice_of(region, row.expensive)})
        gain = saved(best, costs.of(ops))
        saved_j = None if gain is None else gain.joules
        share = None if saved_j is None or total is None or not total.joules > 0 else saved_j / total.joules
        return Confirmation(tuple(trials.made), saved_j, share)

    def _path(self, side: SideName, region: Region) -> tuple[Place, ...]:
        run, op = self.sides.run(side), costliest(self.sides, side, ops_of(region, side))
        if op is None:
            return ()
        return tuple(place for frame in run.call_path(op) if (place := to_place(run, frame)) is not None)

    def _host(self) -> Finding | None:
        waste = find_host_waste(self.sides, self.limits.threshold)
        if waste is None:
            return None
        run = self.sides.run(waste.expensive)
        key = call_behind(run, waste.op, waste.frame)
        place = to_place(run, waste.frame)
        evidence = (f"A waits {waste.waits_a} times a step for a device, B {waste.waits_b} times",)
        here, there = (place, None) if waste.expensive == "a" else (None, place)
        cause = Cause("host", key, waste.waits_a, waste.waits_b, here, there, evidence)
        delta_j = abs(joules(waste.energy_a) - joules(waste.energy_b))
        total = self.sides.costs[waste.expensive].total
        times = [None if run.measurement is None else run.measurement.step_s for run in (self.sides.a, self.sides.b)]
        cheap_j = min(joules(waste.energy_a), joules(waste.energy_b))
        return Finding(
            id="",
            kind="host",
            verdict="waste",
            expensive=waste.expensive,
            region=f"idle, waiting in {key}",
            where="",
            regions=(),
            energy_a=waste.energy_a,
            energy_b=waste.energy_b,
            delta_j=delta_j,
            ratio=max(joules(waste.energy_a), joules(waste.energy_b)) / cheap_j if cheap_j > 0 else None,
            share_of_run=delta_j / total.joules if total is not None and total.joules > 0 else None,
            p_value=None,
            time_a_s=times[0],
            time_b_s=times[1],
            difference=None,
            ops_a=(run.ops[waste.op].name,) if waste.expensive == "a" else (),
            ops_b=(run.ops[waste.op].name,) if waste.expensive == "b" else (),
            kernels_a=(),
            kernels_b=(),
            path_a=(),
            path_b=(),
            cause=cause,
            confirmed=False,
            confirmation=None,
            suggestion=suggest("host", cause, waste.expensive),
        )

    def _number(self, drafts: Sequence[tuple[int, Finding]], waiting: Finding | None) -> None:
        """Put findings of one cause together, those with the most joules first, and number them."""
        groups: dict[object, list[tuple[int | None, Finding]]] = {}
        if waiting is not None:
            groups["host"] = [(None, waiting)]
        for at, finding in drafts:
            groups.setdefault(identity(finding), []).append((at, finding))
        merged = [(merge([finding for _, finding in group]), group) for group in groups.values()]
        merged.sort(key=lambda each: -each[0].delta_j)
        for number, (finding, group) in enumerate(merged, 1):
            self.findings.append(replace(finding, id=str(number)))
            self.row_of |= {at: str(number) for at, _ in group if at is not None}
