"""The comparison of two runs of scripts: API by API, line by line, and the ledgers of both.

The differences of the APIs and of the parts beside them sum to the difference of the programs. So do those of the lines
and of the parts beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from joulediff.model.apis.api_run import ApiAccount, ApiDomain, Ending
from joulediff.model.apis.parts import PartName
from joulediff.model.diff import ConditionDifference, Gate
from joulediff.model.display import Displayed
from joulediff.model.energy import Energy, Ratio

SCHEMA = "joulediff.apis-diff/1"

Verdict = Literal["differs", "noise", "only in A", "only in B", "unknown"]


@dataclass(frozen=True, slots=True)
class Change:
    """Energy and calls of the same code in both runs."""

    energy_a: Energy | None
    """Without the calls inside, with the idle power meanwhile; None if it is not known, or if A has no such code."""
    energy_b: Energy | None
    difference: Energy | None
    """Energy of A minus that of B, with the doubt between two runs; None if one is not known."""
    ratio: Ratio | None
    """Energy of A over that of B."""
    verdict: Verdict
    calls_a: int
    calls_b: int
    seconds_a: float
    seconds_b: float
    from_calls_j: float | None
    """The part of the difference that the number of calls makes, at the mean energy of a call."""
    from_cost_j: float | None
    """The part that the energy of a call makes, at the mean number of calls; both sum to the difference."""


@dataclass(frozen=True, slots=True)
class ApiChange:
    """One API in both runs."""

    api: str
    library: str
    change: Change = field(metadata={"inline": True})


@dataclass(frozen=True, slots=True)
class LinePlace:
    """A line with calls; for the code between two calls, the lines of the calls around it."""

    file: str
    line: int | None
    before_line: int | None = None


@dataclass(frozen=True, slots=True)
class LineChange:
    """The calls of one line, or the code between two calls, in both runs."""

    a: LinePlace | None
    b: LinePlace | None
    between: bool
    """Whether it is code between two calls."""
    text: str
    """The callee that takes most of the energy; empty between calls."""
    change: Change = field(metadata={"inline": True})


@dataclass(frozen=True, slots=True)
class PartChange:
    """A part of the programs beside their calls, with the idle power meanwhile."""

    name: PartName
    energy_a: Energy | None
    energy_b: Energy | None
    difference_j: float | None


@dataclass(frozen=True, slots=True)
class ApiDiffSide:
    """One run of the comparison."""

    label: str
    program: str
    arguments: tuple[str, ...]
    created: str
    seconds: float
    calls: int
    energy: Energy | None
    net_energy: Energy | None
    ledger: Mapping[str, ApiAccount]
    domains: Mapping[str, ApiDomain]
    versions: Mapping[str, str]
    ending: Ending
    trustworthy: bool
    warnings: tuple[str, ...]
    unmet: tuple[str, ...] = ()
    """The names of conditions that did not hold while it was measured."""


@dataclass(frozen=True, slots=True)
class ApiDiff(Displayed):
    """The comparison of two runs of scripts."""

    schema: str
    created: str
    tool: str
    a: ApiDiffSide
    b: ApiDiffSide
    ratio: Ratio | None
    """Energy of A over that of B, with the doubt between two runs."""
    difference: Energy | None
    """Energy of A minus that of B."""
    comparable: bool
    condition_differences: tuple[ConditionDifference, ...]
    threshold: float
    """The smallest difference that is reported, as a share."""
    apis: tuple[ApiChange, ...]
    """The largest difference first."""
    lines: tuple[LineChange, ...]
    parts: tuple[PartChange, ...]
    """What is beside the calls; the first one, the code between calls, is in `lines` too."""
    notes: tuple[str, ...] = ()
    gate: Gate | None = None
    next: str | None = None
    """The command to run next."""

    def __repr__(self) -> str:
        ratio = "not comparable" if self.ratio is None else f"A uses {self.ratio.value:.3g}x the energy of B"
        count = sum(each.change.verdict == "differs" for each in self.apis)
        return f"<ApiDiff {self.a.label} ↔ {self.b.label}: {ratio}, {count} API{'' if count == 1 else 's'} differ>"
