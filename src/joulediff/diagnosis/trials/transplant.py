"""Trial: the cheap side's operators run on the expensive side's tensors.

A tensor that the cheap side computes is never transferred: computing it is part of its cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from joulediff.archive.scratch import open_scratch_file
from joulediff.diagnosis.comparison import Comparison
from joulediff.frameworks.jobs import OTHER, Dataflow, Feed, Job, JobCost, LiveProgram
from joulediff.matching.match_runs import TOLERANCE
from joulediff.model.finding import Region
from joulediff.model.pair import SideName, other_side
from joulediff.model.run import Run, is_view
from joulediff.model.signature import Signature, compare

if TYPE_CHECKING:
    from joulediff.diagnosis.trials.region_trials import RegionTrials


@dataclass(frozen=True)
class Transplant:
    """One region of the expensive side, computed by the cheap side's operators."""

    comparison: Comparison
    region: Region
    expensive: SideName

    @property
    def cheap(self) -> SideName:
        """The side whose operators are run."""
        return other_side(self.expensive)

    @cached_property
    def own(self) -> tuple[int, ...]:
        """Operators of the expensive side, whose tensors are used."""
        return self.comparison.runnable_ops(self.region, self.expensive)

    @cached_property
    def theirs(self) -> tuple[int, ...]:
        """Operators of the cheap side, and views after them that lead to its outputs; views cost nothing."""
        ops, run = self.comparison.runnable_ops(self.region, self.cheap), self.comparison.run(self.cheap)
        every = self.comparison.extend_to_outputs(self.region, self.cheap, ops)
        return every if all(op in ops or is_view(run, op) for op in every) else ops

    def job(self, *, exact: bool) -> Job:
        """Return the job to run; with `exact`, every tensor has the layout that it has on the cheap side.

        Operators that only move the expensive side's results to its outputs are run for the comparison, and not
        measured.
        """
        collect = self.comparison.extend_to_outputs(self.region, self.expensive, self.own)
        compare = tuple(zip(self.region.outputs_of(self.cheap), self.region.outputs_of(self.expensive), strict=True))
        return Job(OTHER, self.theirs, collect=collect, feeds=self._feeds(exact=exact), compare=compare)

    def find_missing(self) -> list[int]:
        """Return the given tensors that only the cheap side has; none if computed tensors are missing as well."""
        run, fed = self.comparison.run(self.cheap), {feed.value for feed in self._feeds(exact=False)}
        missing = [value for value in Dataflow(run, self.theirs).needed if value not in fed]
        return missing if all(run.values[value].producer is None for value in missing) else []

    def feeds_unequal_constants(self) -> bool:
        """Return whether a tensor that the cheap side was given is replaced by one with other values."""
        run, other = self.comparison.run(self.expensive), self.comparison.run(self.cheap)
        return any(
            other.values[feed.value].producer is None
            and not _are_equal(run.signature_of(feed.own), other.signature_of(feed.value))
            for feed in self._feeds(exact=False)
        )

    def import_missing(self, live: Mapping[SideName, LiveProgram]) -> int:
        """Transfer the tensors that only the cheap side was given, such as merged weights; return their number."""
        missing = self.find_missing()
        if not missing or self.cheap not in live:
            return 0
        with open_scratch_file() as path:
            live[self.cheap].export_tensors(self.theirs, missing, path)
            live[self.expensive].import_tensors(path)
        return len(missing)

    def _feeds(self, *, exact: bool) -> tuple[Feed, ...]:
        """Return the tensor of the expensive side for each tensor that the cheap side's operators read."""
        run, other = self.comparison.run(self.expensive), self.comparison.run(self.cheap)
        shared = dict(zip(self.region.inputs_of(self.cheap), self.region.inputs_of(self.expensive), strict=True))
        read = dict.fromkeys(value for op in self.own for value in run.ops[op].inputs)
        feeds = []
        for value in dict.fromkeys(value for op in self.theirs for value in other.ops[op].inputs):
            mine = shared.get(value)
            if mine not in read:
                mine = _find_equal(run, read, other, value)
            if mine is None:
                continue  # computed on the way, or missing: running the job fails then
            form, wanted = run.values[mine].form, other.values[value].form
            is_kept = (form.shape, form.dtype) == (wanted.shape, wanted.dtype) and not exact
            feeds.append(Feed(value, mine, None if is_kept or form == wanted else wanted))
        return tuple(feeds)


def measure_transplant(trials: RegionTrials) -> JobCost:
    """Return the cost of the cheap side's operators on the expensive side's tensors."""
    plan = Transplant(trials.comparison, trials.region, trials.expensive)
    trials.imported = plan.import_missing(trials.live)
    found = trials.measure_changed(plan.job(exact=False))
    # The operators may reject the tensors' own layout; then the cheap side's layout is tried.
    return trials.measure_changed(plan.job(exact=True)) if found.energy is None else found


def _find_equal(run: Run, among: Mapping[int, None], other: Run, value: int) -> int | None:
    """Return the tensor that equals one of the other run: a parameter of the same name, or an equal signature."""
    wanted = other.values[value]
    sign = other.signature_of(value)
    for mine in among:
        found = run.values[mine]
        if wanted.name is not None and found.name == wanted.name and found.shape == wanted.shape:
            return mine
    for mine in among:
        if run.values[mine].shape == wanted.shape and _are_equal(run.signature_of(mine), sign):
            return mine
    return None


def _are_equal(one: Signature | None, other: Signature | None) -> bool:
    return one is not None and other is not None and compare(one, other, tolerance=TOLERANCE)
