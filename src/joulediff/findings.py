"""What a comparison of two runs says: the records that travel from matching to diagnosis and to reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RegionKind = Literal["equal", "movement", "repeated", "constant", "unused"]


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
