"""Disjoint sets of numbers, merged step by step (union-find)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class DisjointSets:
    """The numbers from 0, at first each in a separate set. The smallest number of a set represents it."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def find(self, number: int) -> int:
        """Return the number that represents the set of `number`."""
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def merge(self, a: int, b: int) -> bool:
        """Merge the sets of two numbers; return whether they were different sets."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._parents[max(a, b)] = min(a, b)
        return True

    def number_sets(self) -> tuple[npt.NDArray[np.int64], int]:
        """Return for each number the label of its set, and the number of sets.

        Labels have no gaps and follow the order of the smallest members.
        """
        roots = np.array([self.find(number) for number in range(len(self._parents))], dtype=np.int64)
        kept, labels = np.unique(roots, return_inverse=True)
        return labels.astype(np.int64), len(kept)
