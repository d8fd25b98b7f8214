"""The cheap side's operators in place of the expensive side's: what stands for each tensor that they read.

Nothing that the cheap side computes is taken from it: computing it belongs to what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from joulediff.diagnosis.comparison import Comparison
from joulediff.frameworks.jobs import OTHER, Dataflow, Feed, Job
from joulediff.matching import TOLERANCE, is_view
from joulediff.model.finding import Region
from joulediff.model.pair import SideName, other_side
from joulediff.model.run import Run
from joulediff.model.signature import compare


@dataclass(frozen=True)
class Transplant:
    """One region of the expensive side, done as the cheap side does it."""

    sides: Comparison
    region: Region
    expensive: SideName

    @property
    def cheap(self) -> SideName:
        """The side whose operators are run."""
        return other_side(self.expensive)

    @cached_property
    def own(self) -> tuple[int, ...]:
        """Operators of the expensive side, whose tensors are used."""
        return self.sides.slice_of(self.region, self.expensive)

    @cached_property
    def theirs(self) -> tuple[int, ...]:
        """Operators of the cheap side, with views that make its outputs of what they make: these cost nothing."""
        ops, run = self.sides.slice_of(self.region, self.cheap), self.sides.run(self.cheap)
        every = self.sides.reach_outputs(self.region, self.cheap, ops)
        return every if all(op in ops or is_view(run, op) for op in every) else ops

    def job(self, *, exact: bool) -> Job:
        """Return what to run; `exact` lays every tensor out as the cheap side has it.

        Behind the expensive side's operators come those that only bring what they make to its outputs: they are run to
        compare, and not weighed.
        """
        collect = self.sides.reach_outputs(self.region, self.expensive, self.own)
        compare = tuple((b, a) if self.expensive == "a" else (a, b) for a, b in self.region.outputs)
        return Job(OTHER, self.theirs, collect=collect, feeds=self._feeds(exact=exact), compare=compare)

    def find_wanted(self) -> list[int]:
        """Return what the cheap side was given and the expensive one has not; nothing where it lacks more than that."""
        run, fed = self.sides.run(self.cheap), {feed.value for feed in self._feeds(exact=False)}
        missing = [value for value in Dataflow(run, self.theirs).needed if value not in fed]
        return missing if all(run.values[value].producer is None for value in missing) else []

    def _feeds(self, *, exact: bool) -> tuple[Feed, ...]:
        """Return which tensor of the expensive side stands for each one that the cheap side's operators read."""
        run, other = self.sides.run(self.expensive), self.sides.run(self.cheap)
        shared = {b: a for a, b in self.region.inputs} if self.expensive == "a" else dict(self.region.inputs)
        read = dict.fromkeys(value for op in self.own for value in run.ops[op].inputs)
        feeds = []
        for value in dict.fromkeys(value for op in self.theirs for value in other.ops[op].inputs):
            mine = shared.get(value)
            if mine not in read:
                mine = _find_equal(run, read, other, value)
            if mine is None:
                continue  # made on the way, or not there: the one who runs it will say
            form, wanted = run.values[mine].form, other.values[value].form
            is_kept = (form.shape, form.dtype) == (wanted.shape, wanted.dtype) and not exact
            feeds.append(Feed(value, mine, None if is_kept or form == wanted else wanted))
        return tuple(feeds)


def _find_equal(run: Run, among: Mapping[int, None], other: Run, value: int) -> int | None:
    """Return the tensor that equals one of the other run: a parameter of that name, or one of the same signature."""
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
