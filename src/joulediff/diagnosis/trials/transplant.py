"""Trial: the cheap side's operators run on the expensive side's tensors.

A tensor that the cheap side computes is never transferred: computing it is part of its cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from joulediff.diagnosis.comparison import Comparison
from joulediff.frameworks.jobs import OTHER, Dataflow, Feed, Job, JobCost
from joulediff.matching.match_runs import TOLERANCE
from joulediff.matching.rows import is_view
from joulediff.model.finding import Region
from joulediff.model.pair import SideName, other_side
from joulediff.model.run import Run
from joulediff.model.signature import compare

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
    _import_missing(trials, plan)
    found = trials.measure_changed(plan.job(exact=False))
    # The operators may reject the tensors' own layout; then the cheap side's layout is tried.
    return trials.measure_changed(plan.job(exact=True)) if found.energy is None else found


def _import_missing(trials: RegionTrials, plan: Transplant) -> None:
    """Transfer the tensors that only the cheap side was given: a constant, or weights in one piece."""
    missing = plan.find_missing()
    if not missing or trials.cheap not in trials.live:
        return
    with TemporaryDirectory(prefix="joulediff-") as folder:
        path = Path(folder) / "tensors"
        trials.live[trials.cheap].export_tensors(plan.theirs, missing, path)
        trials.live[trials.expensive].import_tensors(path)
    trials.imported = len(missing)


def _find_equal(run: Run, among: Mapping[int, None], other: Run, value: int) -> int | None:
    """Return the tensor that equals one of the other run: a parameter of the same name, or an equal signature."""
    wanted = other.values[value]
    sign = other.signature_of(value)
    for mine in among:
        found = run.values[mine]
        if wanted.name is not None and found.name == wanted.name and found.shape == wanted.shape:
            return mine
    for mine in among:
        own = run.signature_of(mine)
        if own is None or sign is None or run.values[mine].shape != wanted.shape:
            continue
        if compare(own, sign, tolerance=TOLERANCE):
            return mine
    return None
