"""The input and the result of evidence: the subject that it is asked about, and the leads that it returns.

A `Lead` names a cause and the changes that would test it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from joulediff.diagnosis.comparison import Comparison, costliest, function_of, ops_of, to_place
from joulediff.frameworks.framework import place_of
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.finding import Cause, CauseType, FindingKind, Region
from joulediff.model.pair import SIDES, Pair, SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Frame, Setting

Relation = Literal["one_sided", "same_operators", "other_operators"]
"""How the operators of the two sides of a region relate: the cheap side runs none, the same ones, or others."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change on the expensive side: settings of one switch, the layout of tensors, or the calls."""

    text: str
    settings: tuple[tuple[str, Setting], ...] = ()
    layout: tuple[str, ...] = ()
    """Aspects in which inputs take the form of the cheap side: `dtype`, `strides`."""
    calls: bool = False
    """The cheap side's operators run in place of the expensive side's."""
    is_cause: bool = False
    """These operators differ from the expensive side's in the named cause alone."""


CALLS_OF_OTHER_SIDE = Change("the calls of the other side", calls=True)


@dataclass(frozen=True, slots=True)
class Lead:
    """A cause that the evidence points to, the changes that would test it, and the suggested fix."""

    kind: FindingKind
    cause: Cause
    changes: tuple[Change, ...]
    suggestion: str = ""
    is_by_call: bool = False
    """The calls themselves are the cause: two ways to write the same computation."""

    def with_evidence(self, *more: str) -> Lead:
        """Return the lead with more observations."""
        return replace(self, cause=add_evidence(self.cause, *more))


@dataclass(frozen=True, slots=True)
class Subject:
    """The region that evidence is asked about, and the costliest operator of each side."""

    comparison: Comparison
    region: Region
    expensive: SideName
    op_a: int | None
    op_b: int | None
    live: Mapping[SideName, LiveProgram] = field(default_factory=dict)
    """Programs that can be run to find evidence."""

    @property
    def cheap(self) -> SideName:
        """The side that costs less."""
        return other_side(self.expensive)

    @property
    def ops(self) -> Pair[int | None]:
        """The costliest operator of each side."""
        return Pair(self.op_a, self.op_b)

    @property
    def relation(self) -> Relation:
        """How the operators of the two sides relate, by the names of operators that run kernels."""
        if not ops_of(self.region, self.cheap):
            return "one_sided"
        a, b = (self._working_names(side) for side in SIDES)
        return "same_operators" if a == b else "other_operators"

    def op(self, side: SideName) -> int | None:
        """Return the costliest operator of a side."""
        return self.ops.of(side)

    def frame(self, side: SideName) -> Frame | None:
        """Return the user's line, or else any line, that led to the costliest operator of a side."""
        op = self.op(side)
        return None if op is None else place_of(self.comparison.run(side), op)

    def place(self, side: SideName) -> Place | None:
        """Return that line as a place."""
        return to_place(self.comparison.run(side), self.frame(side))

    @property
    def places(self) -> Pair[Place | None]:
        """That place for each side."""
        return Pair(self.place("a"), self.place("b"))

    @property
    def functions(self) -> Pair[Place | None]:
        """The narrowest function of each side that contains the region's operators."""
        return Pair(*(function_of(self.comparison, side, ops_of(self.region, side)) for side in SIDES))

    @property
    def kernels(self) -> Pair[str | None]:
        """The longest kernel of the costliest operator of each side."""
        return Pair(*(self._longest_kernel(side) for side in SIDES))

    def _longest_kernel(self, side: SideName) -> str | None:
        run, op = self.comparison.run(side), self.op(side)
        kernels = [] if op is None else [run.kernels[at] for at in run.index.kernels[op]]
        longest = max(kernels, key=lambda kernel: kernel.duration_s, default=None)
        return None if longest is None else longest.name

    def _working_names(self, side: SideName) -> Counter[str]:
        run = self.comparison.run(side)
        return Counter(run.ops[op].name for op in ops_of(self.region, side) if run.index.kernels[op])


def make_subject(
    comparison: Comparison, region: Region, expensive: SideName, live: Mapping[SideName, LiveProgram] | None = None
) -> Subject:
    """Return the subject of a region."""
    op_a, op_b = (costliest(comparison, side, ops_of(region, side)) for side in SIDES)
    return Subject(comparison, region, expensive, op_a, op_b, live or {})


def make_cause(
    type_: CauseType, key: str | None, values: Pair[Setting], locations: Pair[Place | None], evidence: tuple[str, ...]
) -> Cause:
    """Return a cause from the values and locations of both sides."""
    return Cause(type_, key, values.a, values.b, locations.a, locations.b, evidence)


def add_evidence(cause: Cause, *more: str) -> Cause:
    """Return a cause with more observations."""
    return replace(cause, evidence=(*cause.evidence, *more))
