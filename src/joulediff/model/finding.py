"""What is found out about two runs: regions that compute the same, and the differences worth reporting, with causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from joulediff.model.energy import Energy
from joulediff.model.pair import SideName
from joulediff.model.place import Place
from joulediff.model.run import Setting

RegionKind = Literal["equal", "movement", "repeated", "constant", "unused"]


Verdict = Literal["waste", "tradeoff"]


FindingKind = Literal["misconfiguration", "api_misuse", "redundant", "host", "unknown"]


CauseType = Literal["setting", "call_path", "layout", "redundancy", "host", "kernel"]


@dataclass(frozen=True, slots=True)
class Region:
    """Operators of two runs that compute the same: equal inputs, equal outputs, and nothing equal between.

    - `equal`: both sides compute the outputs from the inputs.
    - `movement`: views, copies, casts and what else gives back the value it is given; one side may have none.
    - `repeated`: one side computes what the other one has already, or is given.
    - `constant`: one side makes masks, indices or constants, of nothing that the step was given, that the other lacks.
    - `unused`: one side computes what nothing reads.
    """

    id: int
    kind: RegionKind
    a: tuple[int, ...]
    """Operators of a, in order."""
    b: tuple[int, ...]
    inputs: tuple[tuple[int, int], ...]
    """Equal tensors that both sides read: a value of a and one of b."""
    outputs: tuple[tuple[int, int], ...]
    """Equal tensors that both sides make and others read, or the step returns."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one side costs more: the key variable, with both values and where each is set or called."""

    type: CauseType
    key: str | None
    value_a: Setting
    value_b: Setting
    location_a: Place | None
    location_b: Place | None
    evidence: tuple[str, ...] = ()
    """What was seen, a sentence each; also what was not tried, and why."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One change, applied to the expensive side alone and measured. Energies are those of one such region."""

    change: str
    before: Energy | None
    after: Energy | None
    other: Energy | None
    """The cheap side's, measured in the same way."""
    kernels_before: tuple[str, ...] = ()
    kernels_after: tuple[str, ...] = ()
    difference: float | None = None
    """How far the outputs then lie apart, as a share of their norm."""
    explains: bool = False
    """The energy fell to within 10 % of the cheap side's, and the outputs stayed."""
    note: str | None = None
    of_step: bool = False
    """Energies are those of whole steps, not of one region."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """The whole program with the fix: energy and time of a step before and after."""

    change: str
    before: Energy | None
    after: Energy | None
    step_s_before: float | None
    step_s_after: float | None
    saved_share: float | None
    """Of the energy before; negative where it rose."""
    difference: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What was measured to prove a cause. `saved_share`: the part of the whole run's energy that it promises."""

    trials: tuple[Trial, ...]
    saved_j: float | None = None
    saved_share: float | None = None
    whole: WholeRun | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One reported difference. Energies are those of a step, all alike regions together."""

    id: str
    kind: FindingKind
    verdict: Verdict
    expensive: SideName
    region: str
    """`pow, mul, add, 5 more ↔ gelu`."""
    where: str
    """`transformer.h.*.mlp.act`; empty outside of modules."""
    regions: tuple[int, ...]
    """All that belong to it."""
    energy_a: Energy | None
    energy_b: Energy | None
    delta_j: float
    """What the expensive side costs more; positive."""
    ratio: float | None
    """Expensive over cheap; None where the cheap side has nothing."""
    share_of_run: float | None
    """`delta_j` as a share of the expensive side's whole step."""
    p_value: float | None
    """How likely noise alone is, corrected for the number of rows."""
    time_a_s: float | None
    time_b_s: float | None
    difference: float | None
    """How far the outputs of the two sides lie apart, as a share of their norm."""
    ops_a: tuple[str, ...]
    ops_b: tuple[str, ...]
    kernels_a: tuple[str, ...]
    kernels_b: tuple[str, ...]
    path_a: tuple[Place, ...]
    """The call path of the costliest operator, outermost first."""
    path_b: tuple[Place, ...]
    cause: Cause
    confirmed: bool
    confirmation: Confirmation | None
    suggestion: str
    count: int | None = None
    """How many regions are alike in the row that speaks for it; all of `regions` where not told."""
