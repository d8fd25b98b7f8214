"""Two runs in, a diff out: conditions first, then rows, then a cause and its proof for each row that differs.

Nothing is claimed that was not tested: joules of runs that were not measured alike have no verdict, and a difference
that does not show again when both sides are weighed once more is no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from joulediff.archive import load
from joulediff.diagnosis.assemble import Outcome, assemble
from joulediff.diagnosis.build import add_around, most_saved, saved_by_trial, write_finding, write_waiting
from joulediff.diagnosis.comparison import Comparison, ops_of
from joulediff.diagnosis.conditions import compare_conditions
from joulediff.diagnosis.evidence.busy_wait import find_spinning, write_spinning
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.evidence.host import Around, Waits, find_around, find_launches, find_waits
from joulediff.diagnosis.lead import Lead, Subject, add_evidence, make_subject
from joulediff.diagnosis.merge import identity, join_leads, merge
from joulediff.diagnosis.proof_reuse import expected_way, proven_way
from joulediff.diagnosis.significance import SPREAD, RowComparison, compare_rows, is_different, joules, may_differ
from joulediff.diagnosis.trials.trial import Suspect, Trials, explain
from joulediff.diagnosis.trials.whole_step import Alone, find_alone, prove
from joulediff.diagnosis.widen_region import join, whole_call, widen
from joulediff.frameworks.framework import is_read
from joulediff.frameworks.jobs import LiveProgram
from joulediff.matching import TOLERANCE, is_view, match_regions
from joulediff.model.diff import Diff, RowVerdict, Thresholds
from joulediff.model.finding import Finding, Region
from joulediff.model.options import DiffOptions
from joulediff.model.pair import SIDES, SideName, other_side
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run

# So many rows are tried; the others are told by their evidence alone.
TRIED = 6
# Operators that alone cost this many times the step were disturbed.
_TOO_MUCH = 1.2
# A region costs as much as most of its row from this part of the median on.
_ABOUT = 0.8


def diagnose(
    a: Run,
    b: Run,
    *,
    thresholds: Thresholds | None = None,
    tolerance: float = TOLERANCE,
    live: Mapping[SideName, LiveProgram] = MappingProxyType({}),
    listener: ProgressListener | None = None,
    interleaved: bool = False,
) -> Diff:
    """Return what differs between two runs, and why.

    `labs` are the programs that are still there to be tried with; without them there are causes and no proofs. Runs
    that were measured in turns, `interleaved`, need no allowance for what changes from one recording to the next.
    """
    limits, tell = thresholds or Thresholds(), listener or ProgressListener()
    conditions = compare_conditions(a, b)
    tell.stage("matching")
    sides = Comparison(a, b, match_regions(a, b, tolerance=tolerance), tolerance)
    rows = compare_rows(sides)
    work = _Diagnosis(sides, limits, live, tell)
    if not any(each.serious for each in conditions):
        work.alone = find_alone(sides, rows, limits) if interleaved else None
        work.investigate(rows)
    outcome = Outcome(work.findings, work.row_of, work.settled, work.notes, work.around)
    return assemble(sides, rows, outcome, conditions, limits, spread=0.0 if interleaved else SPREAD["metered"])


def diff(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    threshold: float = DiffOptions.threshold,
    slower: float = DiffOptions.slower,
    difference: float = DiffOptions.difference,
    tolerance: float = DiffOptions.tolerance,
) -> Diff:
    """Return what differs between two runs, or the recordings in two files, and why.

    `threshold` is the least difference to report; a waste makes nothing `slower`, nor its outputs differ, by more.
    """
    runs = [each if isinstance(each, Run) else load(each) for each in (a, b)]
    return diagnose(runs[0], runs[1], thresholds=Thresholds(threshold, slower, difference), tolerance=tolerance)


@dataclass(slots=True)
class _Diagnosis:
    """Findings under way. `settled` says what became of a row that is no finding."""

    sides: Comparison
    limits: Thresholds
    live: Mapping[SideName, LiveProgram]
    listener: ProgressListener
    findings: list[Finding] = field(default_factory=list)
    row_of: dict[int, str] = field(default_factory=dict)
    settled: dict[int, RowVerdict] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    around: str | None = None
    """The finding that the energy around the operators belongs to."""
    alone: Alone | None = None
    """The one row that differs, where it cannot be run again: the whole steps are its trial."""
    _drafts: list[tuple[int, Finding]] = field(default_factory=list)
    _tried: int = 0
    _ways: dict[object, int] = field(default_factory=dict)
    """The draft that was proven for two functions of a library that ways part to, or for an operator's setting."""
    _wholes: dict[int, set[int]] = field(default_factory=dict)
    """Regions that a draft was tried with, by its place."""

    def investigate(self, rows: Sequence[RowComparison]) -> None:
        total_j = max(joules(self.sides.costs[side].total) for side in SIDES)
        found = [(at, row) for at, row in enumerate(rows) if may_differ(row, self.limits, total_j)]
        # What one side lacks may be part of a finding on what reads it, so it comes second.
        found.sort(key=lambda each: (self._is_one_sided(each[1]), -abs(each[1].delta_j)))
        around = find_around(self.sides, self.limits.threshold)
        waits = None if around is None else find_waits(self.sides, around)
        for place, (at, row) in enumerate(found):
            self.listener.stage(f"diagnosing: {place + 1} of {len(found)} differences", place / len(found))
            if waits is not None and self._is_read(row):
                self.settled[at] = "changed"
            elif not self._absorb(at, row) and not self._only_looks(row):
                self._take(at, row, sure=is_different(row, self.limits, total_j))
        waiting = None
        if around is not None and waits is not None and not self._add_waits(around, waits):
            waiting = write_waiting(self.sides, around, waits, self.live, self.limits)
        elif around is not None and waits is None and not self._add_inside(around):
            self._explain_launches(rows, around)
        spinning = find_spinning(self.sides, self.limits.threshold)
        others = [] if spinning is None else [write_spinning(self.sides, spinning, self.live, self.limits)]
        self._number(waiting, others)

    def _take(self, at: int, row: RowComparison, *, sure: bool) -> None:
        subject = make_subject(self.sides, self._typical(row), row.expensive)
        if sure and self._ways and self._add_proven(at, row, subject):
            return
        made = self._diagnose(row, sure=sure)
        if made is not None:
            way = proven_way(subject, made.cause) if made.proof.confirmed else None
            if way is not None:
                self._ways[way] = len(self._drafts)
            self._drafts.append((at, made))
        elif sure:
            self.settled[at] = "changed"

    def _add_proven(self, at: int, row: RowComparison, subject: Subject) -> bool:
        """Add a row to a finding of the same two functions, or of a setting for its operator: that was tried."""
        place = self._ways.get(expected_way(subject))
        if place is None or not self._add(at, row, place):
            return False
        first, finding = self._drafts[place]
        before = finding.proof.confirmation
        if before is not None and before.saved_j is not None and before.saved_share is not None:
            grown = finding.cost.delta_j / max(finding.cost.delta_j - abs(row.delta_j), 1e-30)
            most_j = most_saved(self.sides, finding.expensive, finding.cost.delta_j)
            grown = max(1.0, min(grown, most_j / before.saved_j)) if before.saved_j > 0 else grown
            saved = replace(before, saved_j=before.saved_j * grown, saved_share=before.saved_share * grown)
            self._drafts[place] = (first, replace(finding, proof=replace(finding.proof, confirmation=saved)))
        return True

    def _is_one_sided(self, row: RowComparison) -> bool:
        return not any(ops_of(region, other_side(row.expensive)) for region in row.members)

    def _only_looks(self, row: RowComparison) -> bool:
        """Return whether a row only looks at memory in other shapes: that is nothing to leave out or to do better."""
        return all(
            is_view(self.sides.run(side), op) for side in SIDES for region in row.members for op in ops_of(region, side)
        )

    def _is_read(self, row: RowComparison) -> bool:
        """Return whether a row is what a wait reads: part of the finding on the host."""
        run = self.sides.run(row.expensive)
        return all(is_read(run.ops[op].name) for region in row.members for op in ops_of(region, row.expensive))

    def _absorb(self, at: int, row: RowComparison) -> bool:
        """Add work that one side lacks to a finding on all that reads it, which was tried with it, or to its like."""
        for place, members in self._wholes.items():
            if place < len(self._drafts) and {region.id for region in row.members} <= members:
                return self._add(at, row, place)
        if not self._is_one_sided(row):
            return False
        readers = self._readers(row)
        ops = {op for region in row.members for op in ops_of(region, row.expensive)}
        for place, (_, finding) in enumerate(self._drafts):
            others = set(finding.regions) | self._readers_of(finding)
            if finding.expensive == row.expensive and (
                (readers and readers <= others) or self._is_behind(ops, finding)
            ):
                return self._add(at, row, place)
        return False

    def _is_behind(self, ops: set[int], finding: Finding) -> bool:
        """Return whether operators do nothing but bring what a proven finding's regions make to their outputs."""
        side = finding.expensive
        behind: set[int] = set()
        for number in finding.regions if finding.proof.confirmed else ():
            region = self.sides.by_id[number]
            behind.update(self.sides.reach_outputs(region, side, self.sides.slice_of(region, side)))
        return ops <= behind

    def _add(self, at: int, row: RowComparison, place: int) -> bool:
        """Add a row to a finding that was tried with it."""
        first, finding = self._drafts[place]
        if finding.expensive != row.expensive:
            return False
        more = write_finding(self.sides, row, self._typical(row), _lead_of(finding), None, self.limits)
        self._drafts[place] = (first, merge([finding, more], keep_first=True))
        self.row_of[at] = f"with {first}"
        return True

    def _readers(self, row: RowComparison) -> set[int]:
        ops = [op for region in row.members for op in ops_of(region, row.expensive)]
        return {region.id for region in self.sides.readers_of(ops, row.expensive)}

    def _readers_of(self, finding: Finding) -> set[int]:
        if finding.cause.type != "redundancy":
            return set()
        ops = [op for number in finding.regions for op in ops_of(self.sides.by_id[number], finding.expensive)]
        return {region.id for region in self.sides.readers_of(ops, finding.expensive)}

    def _diagnose(self, row: RowComparison, *, sure: bool, slices: bool = False) -> Finding | None:
        """Return what a row amounts to; None where it is not there when looked at again, or pays elsewhere.

        A row whose recording is not `sure` of it must show it when weighed: its own operators, or, where it is a
        matter of how many there are, whole `slices` at the host's pace.
        """
        is_alone = self.alone is not None and self.alone.is_about(row)
        region = self._typical(self.alone.lacking(row) if self.alone is not None and is_alone else row)
        weighed = self._region_to_weigh(row, region)
        subject = make_subject(self.sides, region, row.expensive)
        if subject.op(row.expensive) is None or not self._pays(row) or self._is_too_much(row):
            return None
        is_live = weighed is not None and row.expensive in self.live and self._tried < TRIED and not is_alone
        if not is_live and not sure and not is_alone:
            return None
        trials = Trials(self.sides, row.expensive, weighed or region, self.live, self.limits, paced=slices)
        if is_live and not self._shows_again(trials, row, region, sure=sure, slices=slices):
            return None
        self._tried += is_live
        leads = find_leads(subject, self.live if is_live else {})
        lead, confirmed = leads[0], False
        whole = self._try_whole(subject, leads[0], paced=slices) if is_live else None
        if whole is not None and (made := whole.made[-1]).explains:
            lead, confirmed, trials = leads[0], True, whole
        elif is_live:
            lead, confirmed = self._try(trials, leads)
            trials.made[:0] = [] if whole is None or confirmed else [made]
        if not is_live and not is_alone:
            is_here = row.expensive in self.live
            why = "others cost more, and were tried first" if is_here else "the programs cannot be run again"
            if is_here and weighed is None:
                why = "no work that both programs do reads what it makes"
            lead = replace(lead, cause=add_evidence(lead.cause, f"not tried: a change was not measured ({why})"))
        return write_finding(self.sides, row, region, lead, trials, self.limits, confirmed=confirmed)

    def _is_too_much(self, row: RowComparison) -> bool:
        """Return whether a row costs more than the step it is part of: then something disturbed the recording."""
        total = self.sides.costs[row.expensive].total
        if total is None or abs(row.delta_j) <= _TOO_MUCH * total.joules:
            return False
        self.notes.append(f"{row.group.name}: its operators alone cost more than the whole step did; record again")
        return True

    def _shows_again(self, trials: Trials, row: RowComparison, region: Region, *, sure: bool, slices: bool) -> bool:
        """Return whether a difference is there when weighed: work that one side lacks must cost what it did."""
        if self._is_one_sided(row):
            recorded_j = joules(self.sides.costs[row.expensive].of(ops_of(region, row.expensive)))
            found = trials.costs_again(ops_of(region, row.expensive), recorded_j)
        else:
            found = trials.repeats(slices=slices, sure=sure)
        if found is False and sure:
            self.notes.append(f"{row.group.name}: the difference did not show again when both sides were weighed")
        return found is True or (found is None and sure)

    def _typical(self, row: RowComparison) -> Region:
        """Return the first region of a row that costs as much as most of them do."""
        costs = self.sides.costs[row.expensive]
        weights = [joules(costs.of(ops_of(region, row.expensive))) for region in row.members]
        middle = sorted(weights)[len(weights) // 2]
        return next(r for r, weight in zip(row.members, weights, strict=True) if weight >= _ABOUT * middle)

    def _region_to_weigh(self, row: RowComparison, region: Region) -> Region | None:
        """Return a region that can be compared as it is run: of work that one side lacks, that which reads it."""
        if ops_of(region, other_side(row.expensive)):
            return region
        readers = self.sides.readers_of(ops_of(region, row.expensive), row.expensive)
        return readers[0] if readers else None

    def _pays(self, row: RowComparison) -> bool:
        """Return whether work that one side lacks costs more than it saves in what reads it."""
        if not self._is_one_sided(row):
            return True
        cheap = other_side(row.expensive)
        readers = [self.sides.by_id[number] for number in self._readers(row)]
        mine = self.sides.costs[row.expensive].of(op for r in readers for op in ops_of(r, row.expensive))
        other = self.sides.costs[cheap].of(op for r in readers for op in ops_of(r, cheap))
        gained_j = max(0.0, joules(other) - joules(mine))
        return abs(row.delta_j) > gained_j * (1 + self.limits.threshold)

    def _try(self, trials: Trials, leads: Sequence[Lead]) -> tuple[Lead, bool]:
        """Return the lead whose change explains the difference, or the first one. What is unknown stays so."""
        settings = [lead for lead in leads if lead.cause.type == "setting" and lead.suspects]
        for lead in leads:
            if lead.kind != "unknown" and explain(trials, lead.suspects):
                return lead, True
        if len(settings) > 1:
            together = explain(trials, [suspect for lead in settings for suspect in lead.suspects])
            keys = {suspect.text for suspect in together}
            chosen = [lead for lead in settings if lead.suspects[0].text in keys]
            if chosen:
                return join_leads(chosen), True
        return leads[0], False

    def _try_whole(self, subject: Subject, lead: Lead, *, paced: bool) -> Trials | None:
        """Try all that a call of the user's own code does at once; None where that is one region, or not the cause."""
        if not lead.by_call:
            return None
        members = whole_call(self.sides, subject.expensive, subject.op_a, subject.op_b) or [subject.region]
        members = widen(self.sides, members)
        if [region.id for region in members] == [subject.region.id]:
            return None
        whole = join(self.sides, members)
        trials = Trials(self.sides, subject.expensive, whole, self.live, self.limits, paced=paced)
        trials.change([Suspect(f"the calls of the other side, for all of {lead.cause.key}", calls=True)])
        if trials.made[-1].explains:
            self._wholes[len(self._drafts)] = {region.id for region in members}
        return trials

    def _add_waits(self, around: Around, waits: Waits) -> bool:
        """Count the energy around operators to a finding on the function that waits, if there is one."""
        waiting = self.sides.run(around.expensive).call_path(waits.op)[-1:]
        for place, (_, finding) in enumerate(self._drafts):
            path = finding.work.paths.of(around.expensive)
            is_same = [(f.file, f.function) for f in waiting] == [(p.file, p.function) for p in path[-1:]]
            if is_same and finding.expensive == around.expensive and finding.cause.type == "call_path":
                return self._give_around(place, around, "the host waits there for the device")
        return False

    def _add_inside(self, around: Around) -> bool:
        """Count the energy around operators to a finding on one that has the device wait, if its trial shows it."""
        waiting = {wait.op for wait in self.sides.run(around.expensive).waits}
        for place, (_, finding) in enumerate(self._drafts):
            ops = {op for number in finding.regions for op in ops_of(self.sides.by_id[number], around.expensive)}
            more_j = saved_by_trial(finding) - finding.cost.delta_j
            if finding.expensive == around.expensive and ops & waiting and more_j > around.delta_j / 2:
                return self._give_around(place, around, "the host works within it while the device waits")
        return False

    def _explain_launches(self, rows: Sequence[RowComparison], around: Around) -> None:
        """Find what the host, or an idle device, has more work with: many operators where the other side has few."""
        at = find_launches(self.sides, rows, around)
        if at is None:
            return
        place = next((i for i, (first, _) in enumerate(self._drafts) if first == at), None)
        if place is None:
            row = rows[at]
            if row.expensive != around.expensive and abs(row.delta_j) > around.delta_j:
                return
            made = self._diagnose(replace(row, side=around.expensive), sure=False, slices=True)
            if made is None:
                return
            place = len(self._drafts)
            self._drafts.append((at, made))
        self._give_around(place, around, "more operators are more work for the host")

    def _give_around(self, place: int, around: Around, why: str) -> bool:
        """Count the energy around operators to a finding."""
        first, finding = self._drafts[place]
        self._drafts[place] = (first, add_around(self.sides, finding, around, why))
        self.around = f"with {first}"
        return True

    def _number(self, waiting: Finding | None, others: Sequence[Finding]) -> None:
        """Put findings of one cause together, those with the most joules first, and number them.

        `others` have no rows.
        """
        groups: dict[object, list[tuple[int | None, Finding]]] = {id(each): [(None, each)] for each in others}
        if waiting is not None:
            groups["waiting"] = [(None, waiting)]
        for at, finding in self._drafts:
            groups.setdefault(identity(finding), []).append((at, finding))
        merged = [(merge([finding for _, finding in group]), group) for group in groups.values()]
        merged.sort(key=lambda each: -each[0].cost.delta_j)
        names: dict[str, str] = {}
        for number, (finding, group) in enumerate(merged, 1):
            self.findings.append(prove(replace(finding, id=str(number)), self.alone))
            names |= {f"with {at}": str(number) for at, _ in group if at is not None}
            self.row_of |= {at: str(number) for at, _ in group if at is not None}
            if finding is waiting:
                self.around = str(number)
        self.row_of = {at: names.get(name, name) for at, name in self.row_of.items()}
        if self.around is not None:
            self.around = names.get(self.around, self.around)


def _lead_of(finding: Finding) -> Lead:
    return Lead(finding.kind, finding.cause, ())
