"""A comparison of two runs, complete: every report is made of a `Diff` alone, without the runs.

Its rows sum to what was metered on each side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from joulediff.model.energy import Energy
from joulediff.model.finding import Finding
from joulediff.model.measurement import Account
from joulediff.model.options import DiffOptions
from joulediff.model.pair import Pair
from joulediff.model.run import Setting

SCHEMA = "joulediff.diff/1"

RowKind = Literal[
    "equal", "movement", "repeated", "constant", "unused", "unmatched", "idle", "host", "waits", "unexplained"
]
RowVerdict = Literal["finding", "noise", "changed", "only_a", "only_b", "unknown"]


@dataclass(frozen=True, slots=True)
class Row:
    """Regions that are alike, or a part of the books that is no operator. All rows sum to what was metered."""

    name: str
    where: str
    kind: RowKind
    count: int
    ops_a: int
    ops_b: int
    energy_a: Energy | None
    energy_b: Energy | None
    verdict: RowVerdict
    finding: str | None = None
    regions: tuple[int, ...] = ()

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(self.energy_a, self.energy_b)

    @property
    def ops(self) -> Pair[int]:
        """The number of operators of each side."""
        return Pair(self.ops_a, self.ops_b)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The books of one side."""

    domains: tuple[Account, ...]
    split: str | None
    """`replayed` or `attributed`."""
    distinct_ops: int
    """How many distinct operators were replayed."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step costs."""

    energy: Energy | None
    step_s: float | None
    repeats: int
    steps: int


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One run of a diff."""

    label: str
    program: str | None
    created: str
    step: StepCost
    device: str
    """`NVIDIA H200`, or the CPU."""
    clock_mhz: float | None
    temperature_c: float | None
    trustworthy: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    ops: int
    unmatched: int
    unmatched_names: tuple[str, ...]
    matched_share: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Energy of A over that of B."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ConditionDifference:
    """Something that was not alike when the two runs were measured. A serious one makes joules incomparable."""

    name: str
    a: Setting
    b: Setting
    serious: bool


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as a finding, and as a waste."""

    threshold: float = DiffOptions.threshold
    """By how much the energies must differ."""
    slower: float = DiffOptions.slower
    """By how much the cheap side may be slower."""
    difference: float = DiffOptions.difference
    """How far the outputs may lie apart."""

    @classmethod
    def of(cls, options: DiffOptions) -> Thresholds:
        """Return the thresholds among the options of a comparison."""
        return cls(options.threshold, options.slower, options.difference)


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that is said of two runs. `a`, `b` are the runs as given."""

    schema: str
    created: str
    tool: str
    a: DiffSide
    b: DiffSide
    ratio: Ratio | None
    delta_j: float | None
    delta_low_j: float | None
    delta_high_j: float | None
    comparable: bool
    condition_differences: tuple[ConditionDifference, ...]
    explained_share: float | None
    """Which part of the difference between the runs the findings account for."""
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...] = field(metadata={"name": "regions"})
    ledger_a: Ledger
    ledger_b: Ledger
    thresholds: Thresholds
    notes: tuple[str, ...] = ()
    same_work: bool = False
    """Both sides ran the same operators and kernels on the same shapes; their host code may still differ."""
    next: str | None = None
    """The command to run next."""
