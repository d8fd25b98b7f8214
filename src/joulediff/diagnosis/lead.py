"""What evidence is asked about, and what it points to: a row's subject, and leads with the suspects worth a trial."""

from __future__ import annotations

from dataclasses import dataclass, replace

from joulediff.diagnosis.comparison import Comparison, costliest, to_place
from joulediff.diagnosis.trials.trial import Suspect
from joulediff.frameworks.framework import place_of
from joulediff.model.finding import Cause, FindingKind, Region
from joulediff.model.pair import SideName, other_side
from joulediff.model.place import Place
from joulediff.model.run import Frame


@dataclass(frozen=True, slots=True)
class Lead:
    """A cause that the evidence points to, and how to try it."""

    kind: FindingKind
    cause: Cause
    suspects: tuple[Suspect, ...]
    by_call: bool = False
    """The calls themselves are the cause: two ways to write the same."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about: a row of regions, by the costliest operator of one of them on each side."""

    sides: Comparison
    region: Region
    expensive: SideName
    op_a: int | None
    op_b: int | None

    @property
    def cheap(self) -> SideName:
        """The side that costs less."""
        return other_side(self.expensive)

    def op(self, side: SideName) -> int | None:
        """Return the costliest operator of a side."""
        return self.op_a if side == "a" else self.op_b

    def frame(self, side: SideName) -> Frame | None:
        """Return the line of the user's own code, or of any, that led to that operator."""
        op = self.op(side)
        return None if op is None else place_of(self.sides.run(side), op)

    def place(self, side: SideName) -> Place | None:
        """Return that line as a place."""
        return to_place(self.sides.run(side), self.frame(side))


def make_subject(sides: Comparison, region: Region, expensive: SideName) -> Subject:
    """Return what to ask about a region."""
    return Subject(sides, region, expensive, costliest(sides, "a", region.a), costliest(sides, "b", region.b))


def add_evidence(cause: Cause, *more: str) -> Cause:
    """Return a cause with more that was seen."""
    return replace(cause, evidence=(*cause.evidence, *more))
