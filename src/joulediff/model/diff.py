"""The complete comparison of two runs: every report is made from a `Diff` alone, without the runs.

Its rows sum to the metered energy of each side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from joulediff.model.display import Displayed
from joulediff.model.energy import Amount, Energy, ManySteps, Ratio, Scale, many_steps
from joulediff.model.finding import Basis, Finding
from joulediff.model.measurement import Account, Unseen
from joulediff.model.options import DiffOptions
from joulediff.model.pair import Pair, SideName
from joulediff.model.place import Place
from joulediff.model.run import Setting

SCHEMA = "joulediff.diff/2"

RowKind = Literal[
    "equal",
    "movement",
    "repeated",
    "constant",
    "unused",
    "unmatched",
    "idle",
    "host",
    "waits",
    "unexplained",
    "function",
]
"""`function` is a function of the user's, where steps are compared as a whole."""
RowVerdict = Literal["finding", "noise", "changed", "only_a", "only_b", "unknown"]


@dataclass(frozen=True, slots=True)
class Row:
    """Similar regions, or a part of the ledger outside operators. All rows sum to the metered energy."""

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
    basis: Basis | None = None
    """How its regions were matched: the least certain way of them; None for a row without regions."""
    drift: float | None = None
    """The largest `Region.drift`."""

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(self.energy_a, self.energy_b)

    @property
    def ops(self) -> Pair[int]:
        """The number of operators of each side."""
        return Pair(self.ops_a, self.ops_b)


@dataclass(frozen=True, slots=True)
class NamedDivergence:
    """A `Divergence` with the names of its operators, as reports show it."""

    name: str
    """`silu ↔ gelu`; one name where both sides have the same."""
    where: str
    """`model.layers.7.mlp.act_fn`; empty outside of modules."""
    ops_a: tuple[str, ...]
    """Empty if only b has such operators."""
    ops_b: tuple[str, ...]
    location_a: Place | None
    """The line of the first operator."""
    location_b: Place | None
    difference: float
    expected: float
    executed: float | None = None

    @property
    def only_in(self) -> SideName | None:
        """The side that has all the operators, if the other one has none."""
        if self.ops_a and self.ops_b:
            return None
        return "a" if self.ops_a else "b"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one side."""

    domains: tuple[Account, ...]
    split: str | None
    """`replayed` or `attributed`."""
    distinct_ops: int
    """Number of distinct operators that were replayed."""
    exceeds_meter: bool = False
    """The parts of a counted domain of the host sum to more than was metered, beyond the errors of both."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of one step."""

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
    unmet: tuple[str, ...] = ()
    """The names of conditions that did not hold while it was measured."""
    unseen: Unseen | None = None
    """Work of the step that belongs to none of its operators; None if there is none, or if that is not known."""


@dataclass(frozen=True, slots=True)
class ConditionDifference:
    """A condition that differed when the two runs were measured. A serious one makes joules incomparable."""

    name: str
    a: Setting
    b: Setting
    serious: bool


@dataclass(frozen=True, slots=True)
class OtherDifference:
    """A setting that differs between the programs and was not confirmed as the cause of a finding."""

    name: str
    a: Setting
    b: Setting
    location_a: Place | None
    """The line of the user's code that sets it; None if it is not recorded."""
    location_b: Place | None


@dataclass(frozen=True, slots=True)
class NamedRegion:
    """The operators directly in a region that `joulediff.region` names, or the rest of the step; they sum to it."""

    name: str | None
    """The names of the region, outermost first, joined by slashes; None for the rest of the step."""
    ops_a: int
    ops_b: int
    energy_a: Energy | None
    energy_b: Energy | None

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(self.energy_a, self.energy_b)


@dataclass(frozen=True, slots=True)
class NotExplained:
    """The part of a significant difference between the steps that no finding explains."""

    energy: Energy
    """Energy of A minus that of B, less the differences of the findings; negative if B uses more."""
    functions_a: tuple[Place, ...]
    """The narrowest functions in which most of it lies; empty if A does no work there."""
    functions_b: tuple[Place, ...]
    differs: tuple[str, ...]
    """What differs there, one sentence each, the largest part first."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits that decide whether a difference is a finding, and whether a finding is a waste."""

    threshold: float = DiffOptions.threshold
    """The smallest difference of energies that is reported, as a share."""
    slower: float = DiffOptions.slower
    """How much slower the cheap side of a waste may be, as a share."""
    difference: float = DiffOptions.difference
    """How far the outputs of a waste may differ, as a share of their norm."""

    @classmethod
    def of(cls, options: DiffOptions) -> Thresholds:
        """Return the thresholds among the options of a comparison."""
        return cls(options.threshold, options.slower, options.difference)


GateVerdict = Literal["passed", "failed", "cannot tell"]
# Why a gate cannot tell: the interval holds the limit and more time makes it narrower; it holds the limit, and an hour
# would not settle it; recordings of one program differ too much; conditions differ; a recording was disturbed; an
# energy is unknown.
GateReason = Literal["too noisy", "too close", "recordings", "conditions", "disturbed", "not measured"]


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether B uses more energy than A by more than a limit."""

    verdict: GateVerdict
    limit: float
    """B may use 1 + `limit` times the energy of A."""
    ratio: Ratio | None
    """Energy of B over that of A; its interval includes the spread between processes."""
    reason: GateReason | None = None
    """Why the verdict is `cannot tell`."""
    rounds: int = 0
    """How many pairs of processes were measured in alternation; 0 if a side is a recording."""
    spent_s: float = 0.0
    """How long these took."""
    settles_s: float | None = None
    """Seconds that would settle it, of `--settle`, or of `--seconds` for recordings; None if time does not help."""


@dataclass(frozen=True, slots=True)
class Diff(Displayed):
    """The comparison of two runs. `a`, `b` are the runs as given."""

    schema: str
    created: str
    tool: str
    a: DiffSide
    b: DiffSide
    ratio: Ratio | None
    """Energy of A over that of B."""
    delta_j: float | None
    delta_low_j: float | None
    delta_high_j: float | None
    comparable: bool
    condition_differences: tuple[ConditionDifference, ...]
    explained_share: float | None
    """The share of the difference between the runs that the findings explain."""
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...] = field(metadata={"name": "regions"})
    ledger_a: Ledger
    ledger_b: Ledger
    thresholds: Thresholds
    notes: tuple[str, ...] = ()
    not_explained: NotExplained | None = None
    """Set if the ratio is significant and findings leave a significant part of the difference."""
    also_differs: tuple[OtherDifference, ...] = ()
    """Settings that can act on the operators of a side, and that no trial confirmed as a cause."""
    same_work: bool = False
    """Both sides ran the same operators and kernels on the same shapes; their energy may still differ."""
    divergences: tuple[NamedDivergence, ...] = ()
    """Where the runs begin to differ, in the order of the operators of a."""
    outputs_agree: bool = True
    """Whether the two steps return equal tensors."""
    many_steps: ManySteps | None = None
    """What many steps of A take more than those of B, if it was asked for."""
    named_regions: tuple[NamedRegion, ...] = ()
    """What each region of the programs costs, the largest first, and the rest of the step; empty without regions."""
    gate: Gate | None = None
    """Set if the user gave a limit."""
    next: str | None = None
    """The command to run next."""

    @property
    def is_by_function(self) -> bool:
        """Whether whole steps were compared, by functions: a side has no operators."""
        return not (self.a.ops and self.b.ops)

    def __repr__(self) -> str:
        ratio = "not comparable" if self.ratio is None else f"A uses {self.ratio.value:.3g}x the energy of B"
        count = len(self.findings)
        return f"<Diff {self.a.label} ↔ {self.b.label}: {ratio}, {count} finding{'' if count == 1 else 's'}>"


def scale_diff(diff: Diff, scale: Scale) -> ManySteps | None:
    """Return what many steps of A take more than those of B; None if the energies are unknown or not comparable."""
    known = (diff.delta_j, diff.delta_low_j, diff.delta_high_j)
    energies = (diff.a.step.energy, diff.b.step.energy)
    if not diff.comparable or any(each is None or not math.isfinite(each) for each in known):
        return None
    sources = tuple(dict.fromkeys(energy.source for energy in energies if energy is not None))
    return many_steps(Amount(*(each for each in known if each is not None)), scale, sources)
