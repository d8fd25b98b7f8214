"""Disjoint sets of numbers that are joined step by step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Unions:
    """Numbers from 0, each alone at first. The least number of a set stands for it."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def find(self, number: int) -> int:
        """Return the number that stands for the set of `number`."""
        above = self._above
        while above[number] != number:
            above[number] = above[above[number]]
            number = above[number]
        return number

    def join(self, a: int, b: int) -> bool:
        """Make one set of two; return whether they were two."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._above[max(a, b)] = min(a, b)
        return True

    def numbered(self) -> tuple[npt.NDArray[np.int64], int]:
        """Return the set of each number, as numbers without gaps in the order of their least members, and how many."""
        roots = np.array([self.find(number) for number in range(len(self._above))], dtype=np.int64)
        kept, of = np.unique(roots, return_inverse=True)
        return of.astype(np.int64), len(kept)
