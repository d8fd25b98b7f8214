"""The records of a comparison: regions that compute the same, and findings.

A `Finding` is made of parts: its cost, the work it is about, its cause and its proof. In JSON these parts are flat.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from joulediff.model.energy import Energy
from joulediff.model.pair import Pair, SideName
from joulediff.model.place import Place
from joulediff.model.run import Setting
from joulediff.model.units import format_energy

RegionKind = Literal["equal", "movement", "repeated", "constant", "unused"]
# Ways to establish a match, the most certain first.
Basis = Literal["equal", "executed", "drift", "call"]
BASES: tuple[Basis, ...] = get_args(Basis)
Verdict = Literal["waste", "tradeoff"]
FindingKind = Literal["misconfiguration", "api_misuse", "redundant", "host", "unknown"]
CauseType = Literal[
    "setting", "call_path", "layout", "redundancy", "host", "kernel", "argument", "shape", "state", "code", "repetition"
]
ProofWord = Literal["cause confirmed", "replacement confirmed", "observed"]
"""How a finding is proven.

- `cause confirmed`: the named thing itself, and nothing else, was changed in the expensive program. The energy fell to
  the cheap side's, and the outputs were compared and stay.
- `replacement confirmed`: the cheap side's operators on the expensive side's tensors cost less, with equal outputs.
- `observed`: evidence without a successful trial.
"""
PROOF_WORDS: tuple[ProofWord, ...] = get_args(ProofWord)
# Joins the names, and the values, of settings that are one cause only together.
TOGETHER = " and "
# Begins a sentence of the evidence that says why a change was not tried.
NOT_TRIED = "not tried: "


@dataclass(frozen=True, slots=True)
class Region:
    """Operators of two runs that compute the same outputs from the same inputs, with no equal tensor between.

    - `equal`: both sides compute the outputs from the inputs.
    - `movement`: views, copies, casts and other operators that return their input's value; one side may have none.
    - `repeated`: one side computes a tensor that the other one has already, or is given.
    - `constant`: one side makes masks, indices or constants that depend on no input and that the other side lacks.
    - `unused`: one side computes tensors that nothing reads.
    """

    id: int
    kind: RegionKind
    a: tuple[int, ...]
    """Operators of a, in order."""
    b: tuple[int, ...]
    inputs: tuple[tuple[int, int], ...]
    """Equal tensors that both sides read: a value of a and one of b."""
    outputs: tuple[tuple[int, int], ...]
    """Equal tensors that both sides make and that other operators read or the step returns."""
    basis: Basis = "equal"
    """How the match was established.

    - `equal`: the outputs agree as far as their float types can tell.
    - `drift`: the outputs agree within the rounding errors that add up along a program; `drift` is their distance.
    - `executed`: the operators of one side were run on the tensors of the other, with equal outputs.
    - `call`: what is left of two calls with equal outputs.
    """
    drift: float | None = None
    """The largest distance between outputs of the two sides, as a share of their norm; None if unknown."""

    def inputs_of(self, side: SideName) -> list[int]:
        """Return the values of one side in `inputs`."""
        return [Pair(*each).of(side) for each in self.inputs]

    def outputs_of(self, side: SideName) -> list[int]:
        """Return the values of one side in `outputs`."""
        return [Pair(*each).of(side) for each in self.outputs]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Operators whose inputs are equal in both runs and whose outputs differ more than rounding explains."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    difference: float
    """Distance between the outputs, as a share of their norm; 1 where they are unrelated."""
    expected: float
    """The distance that the inputs and the rounding of the float type explain."""
    executed: float | None = None
    """The distance if the operators of both sides are run on the same tensors; None if they were not."""


@dataclass(frozen=True, slots=True)
class Match:
    """The regions of two runs, and what a reader has to know about the match."""

    regions: tuple[Region, ...]
    divergences: tuple[Divergence, ...] = ()
    """Where the runs begin to differ, in the order of the operators of a."""
    notes: tuple[str, ...] = ()
    outputs_agree: bool = True
    """Whether the two steps return equal tensors."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The energy and time of both sides in one step, all similar regions together, and how far their outputs differ."""

    energy_a: Energy | None
    energy_b: Energy | None
    delta_j: float
    """Extra energy of the expensive side; positive."""
    ratio: float | None
    """Expensive over cheap; None where the cheap side runs nothing."""
    share_of_run: float | None
    """`delta_j` as a share of the expensive side's whole step."""
    p_value: float | None
    """Probability of such a difference from noise alone, corrected for the number of rows."""
    time_a_s: float | None
    time_b_s: float | None
    difference: float | None
    """Distance between the outputs of the two sides, as a share of their norm."""

    @property
    def energies(self) -> Pair[Energy | None]:
        """The energy of each side."""
        return Pair(self.energy_a, self.energy_b)

    @property
    def times_s(self) -> Pair[float | None]:
        """The time of each side."""
        return Pair(self.time_a_s, self.time_b_s)


@dataclass(frozen=True, slots=True)
class Function:
    """The narrowest function that contains operators."""

    place: Place
    """Its line that leads to the costliest operator."""
    module: str = ""
    """The narrowest module that contains the operators: `transformer.h.*.attn`; empty outside of modules."""


@dataclass(frozen=True, slots=True)
class Work:
    """The operators, kernels and call paths of one typical region."""

    ops_a: tuple[str, ...]
    ops_b: tuple[str, ...]
    kernels_a: tuple[str, ...]
    kernels_b: tuple[str, ...]
    path_a: tuple[Place, ...]
    """The call path of the costliest operator, outermost first."""
    path_b: tuple[Place, ...]
    function_a: Function | None = None
    """The function that contains all operators of the region; None if the side runs none or it is not known."""
    function_b: Function | None = None

    @property
    def functions(self) -> Pair[Function | None]:
        """The function of each side."""
        return Pair(self.function_a, self.function_b)

    @property
    def paths(self) -> Pair[tuple[Place, ...]]:
        """The call path of each side."""
        return Pair(self.path_a, self.path_b)


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
    """Observations, one sentence each; also changes that were not tried, and why."""

    @property
    def not_tried(self) -> str | None:
        """The last sentence of the evidence that says why a change was not tried; None if there is none."""
        return next((each for each in reversed(self.evidence) if each.startswith(NOT_TRIED)), None)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names in `key`: several where settings are one cause only together."""
        return () if self.key is None else tuple(self.key.split(TOGETHER))

    @property
    def values(self) -> Pair[Setting]:
        """The value of each side."""
        return Pair(self.value_a, self.value_b)

    @property
    def locations(self) -> Pair[Place | None]:
        """Where each side sets or calls it."""
        return Pair(self.location_a, self.location_b)


@dataclass(frozen=True, slots=True)
class Trial:
    """One change, applied to the expensive side alone and measured. Energies are those of one region."""

    change: str
    before: Energy | None
    after: Energy | None
    other: Energy | None
    """The cheap side's energy, measured in the same way."""
    kernels_before: tuple[str, ...] = ()
    kernels_after: tuple[str, ...] = ()
    difference: float | None = None
    """Distance between the outputs before and after, as a share of their norm."""
    explains: bool = False
    """The energy fell to within 10 % of the cheap side's, and the outputs stayed equal."""
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
    """Saved part of the energy before; negative where it rose."""
    difference: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The measurements behind a proof. `saved_share` is the expected saving as a share of the whole step's energy."""

    trials: tuple[Trial, ...]
    saved_j: float | None = None
    saved_share: float | None = None
    whole: WholeRun | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """How far a cause is proven, and the measurements; `confirmation` is None if nothing was measured."""

    word: ProofWord = field(metadata={"name": "proof"})
    confirmation: Confirmation | None

    @property
    def confirmed(self) -> bool:
        """Whether a trial confirmed the cause or a replacement."""
        return self.word != "observed"

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials that were made."""
        return () if self.confirmation is None else self.confirmation.trials


@dataclass(frozen=True, slots=True)
class Price:
    """Extra work of the cheap side that the fix of a finding brings with it; its energy is subtracted in the cost."""

    region: str
    delta_j: float
    """Extra energy of the cheap side; positive."""
    location: Place | None
    """The line of the cheap side."""


def weakest_proof(words: Iterable[ProofWord]) -> ProofWord:
    """Return the weakest of several proofs; `observed` for none."""
    return max(words, key=PROOF_WORDS.index, default="observed")


@dataclass(frozen=True, slots=True)
class Finding:
    """One reported difference."""

    id: str
    kind: FindingKind
    verdict: Verdict
    expensive: SideName
    region: str
    """`pow, mul, add, 5 more ↔ gelu`."""
    where: str
    """`transformer.h.*.mlp.act`; empty outside of modules."""
    regions: tuple[int, ...]
    """Numbers of all its regions."""
    cost: Cost = field(metadata={"inline": True})
    work: Work = field(metadata={"inline": True})
    cause: Cause
    proof: Proof = field(metadata={"inline": True})
    suggestion: str
    count: int | None = None
    """Number of similar regions in the row that names the finding; None means all of `regions`."""
    prices: tuple[Price, ...] = ()
    """Extra work of the cheap side for the same cause. `cost` and the saving are net of it."""

    def __repr__(self) -> str:
        cause = " ".join(filter(None, [self.cause.type, self.cause.key]))
        more = f"{self.expensive.upper()} +{format_energy(self.cost.delta_j)}"
        return f"<Finding {self.id}: {self.region}, {more}, {cause}, {self.proof.word}>"
