"""The two sides of a comparison, and a value for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SideName = Literal["a", "b"]
SIDES: tuple[SideName, ...] = ("a", "b")


def other_side(side: SideName) -> SideName:
    """Return the side that is not this one."""
    return "b" if side == "a" else "a"


@dataclass(frozen=True, slots=True)
class Pair(Generic[T_co]):
    """One value for each side."""

    a: T_co
    b: T_co

    def of(self, side: SideName) -> T_co:
        """Return the value of a side."""
        return self.a if side == "a" else self.b

    def __iter__(self) -> Iterator[T_co]:
        """Iterate over a's value, then b's."""
        yield self.a
        yield self.b


def pair_from(side: SideName, value: T, other: T) -> Pair[T]:
    """Return the pair in which `side` has `value` and the other side has `other`."""
    return Pair(value, other) if side == "a" else Pair(other, value)
