"""Values of one run that are the same tensor: views, copies, transposes, casts, repetitions, and what is computed twice.

An operator that makes nothing but what it was given moves data. Equality within a run is exact but for the order of
summing; only a cast may change a value, by the rounding of its float type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from joulediff.matching.features import SAME, WEIGHTS, Features
from joulediff.matching.graph import Graph
from joulediff.matching.unions import Unions

# How many neighbours in the order of sizes a value is compared with.
_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Classes:
    """Values grouped by what they hold."""

    of: npt.NDArray[np.int64]
    """By value: its class, the values that are equal wherever they come from."""
    count: int
    entity: npt.NDArray[np.int64]
    """By value: its entity, the part of a class that data movement connects."""
    entities: int
    moves: npt.NDArray[np.bool_]
    """By operator: whether it only moves data."""


def find_classes(graph: Graph, features: Features) -> Classes:
    """Return the classes of a run's values, and the operators that lead from a class to itself."""
    unions = Unions(len(graph.run.values))
    moves = np.zeros(len(graph.run.ops), dtype=bool)
    for op in range(len(graph.run.ops)):
        sources = _sources(graph, features, op)
        if sources is not None:
            moves[op] = True
            for made, read in sources:
                unions.join(made, read)
    entity, entities = unions.numbered()
    _join_equal(features, unions)
    of, count = unions.numbered()
    return Classes(of, count, entity, entities, moves)


def _sources(graph: Graph, features: Features, op: int) -> list[tuple[int, int]] | None:
    """Return for each value that an operator makes the one it is a copy of; None if it computes anything."""
    reads, found = graph.reads[op], []
    if not reads:
        return None
    for made in graph.makes[op]:
        source = next((read for read in reads if _is_copy(graph, features, made, read, alone=len(reads) == 1)), None)
        if source is None:
            return None
        found.append((made, source))
    return found


def _is_copy(graph: Graph, features: Features, made: int, read: int, *, alone: bool) -> bool:
    values = graph.run.values
    if not (features.known[made] and features.known[read]):
        # Nothing is known of what they hold, but a view has the memory of what it is a view of.
        a, b = values[made], values[read]
        return a.storage == b.storage and a.previous is None and features.counts[made] == features.counts[read]
    if not _is_multiple(features.nonzeros[made], features.nonzeros[read]):
        return False
    limit = SAME
    if alone and values[made].dtype != values[read].dtype:
        limit = max(SAME, float(features.rounding[made]), float(features.rounding[read]))
    return bool(np.abs(features.rows[made] - features.rows[read]).max() <= limit)


def _is_multiple(a: float, b: float) -> bool:
    ratio = max(a, b) / min(a, b)
    return abs(ratio - round(ratio)) <= SAME * ratio


def _join_equal(features: Features, unions: Unions) -> None:
    """Join strong values that are equal wherever they come from: tied weights, or the same computed twice."""
    strong = np.flatnonzero(features.strong)
    order = strong[np.argsort(features.rows[strong, 0], kind="stable")]
    rows, counts = features.rows[order], features.counts[order]
    for step in range(1, min(_NEIGHBOURS, len(order) - 1) + 1):
        near = np.abs(rows[step:] - rows[:-step]).max(axis=1) <= SAME * WEIGHTS.max()
        for at in np.flatnonzero(near & (counts[step:] == counts[:-step])):
            unions.join(int(order[at]), int(order[at + step]))
