"""Values of one run that hold the same tensor: views, copies, casts, repetitions, results computed twice.

An operator whose outputs all equal its inputs moves data. Within a run equal means equal up to the order of summation;
only a cast may change a value, by the rounding of its float type. An operator that puts the same elements into another
order, such as a sort, moves no data, unless it only returns a view.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from joulediff.matching.disjoint_sets import DisjointSets
from joulediff.matching.features import SAME, SAME_SKETCH, WEIGHTS, Features, are_multiples, sketch_distance
from joulediff.matching.graph import Graph

Ints = npt.NDArray[np.int64]

# Operators with more pairs of inputs and outputs are not examined: an optimizer step over all weights moves no data.
_MOST_PAIRS = 64
# Sizes contain fourth powers, whose relative error is this many times that of the elements.
POWERS = 4.0
# Number of neighbours, in the order of magnitudes, that a value is compared with.
_NEIGHBOURS = 4
# Largest number of different orders of the same elements that are distinguished.
_ORDERS = 16


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Values grouped into classes of equal tensors, and each class into entities."""

    class_of: npt.NDArray[np.int64]
    """By value: its class, all values that are equal to it."""
    class_count: int
    entity_of: npt.NDArray[np.int64]
    """By value: its entity, the values of a class that data movement connects."""
    entity_count: int
    is_movement: npt.NDArray[np.bool_]
    """By operator: whether it only moves data."""


def find_equivalence(graph: Graph, features: Features) -> Equivalence:
    """Return the classes and entities of a run's values, and the operators that only move data."""
    sets = DisjointSets(len(graph.run.values))
    is_movement = np.array([not makes and bool(reads) for reads, makes in zip(graph.reads, graph.makes, strict=True)])
    ops, made, read = _pairs(graph)
    copies = _are_copies(graph, features, ops, made, read)
    sources: dict[int, dict[int, int]] = {}
    for op, one, other in zip(ops[copies].tolist(), made[copies].tolist(), read[copies].tolist(), strict=True):
        sources.setdefault(op, {}).setdefault(one, other)
    for op, found in sources.items():
        if len(found) == len(graph.makes[op]):
            is_movement[op] = True
            for one, other in found.items():
                sets.merge(one, other)
    entity_of, entity_count = sets.number_sets()
    _merge_equal(features, sets)
    class_of, class_count = sets.number_sets()
    return Equivalence(class_of, class_count, entity_of, entity_count, is_movement.astype(bool))


def _pairs(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Return each operator with each value it makes and each it reads, without operators that have very many."""
    found = [
        (op, made, read)
        for op, (reads, makes) in enumerate(zip(graph.reads, graph.makes, strict=True))
        if len(reads) * len(makes) <= _MOST_PAIRS
        for made in makes
        for read in reads
    ]
    ops, made, read = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return ops, made, read


def _are_copies(graph: Graph, features: Features, ops: Ints, made: Ints, read: Ints) -> npt.NDArray[np.bool_]:
    """Return for which pairs the value that an operator makes equals the value that it reads."""
    values = graph.run.values
    known = features.known[made] & features.known[read]
    types: dict[str, int] = {}
    dtype = np.array([types.setdefault(value.dtype, len(types)) for value in values], dtype=np.int64)
    alone = np.array([len(reads) == 1 for reads in graph.reads], dtype=bool)
    casts = (dtype[made] != dtype[read]) & alone[ops]
    limit = np.where(casts, np.maximum(SAME, np.maximum(features.rounding[made], features.rounding[read])), SAME)
    storage = np.array([value.storage for value in values], dtype=np.int64)
    fresh = np.array([value.previous is None for value in values], dtype=bool)
    views = (storage[made] == storage[read]) & fresh[made] & (features.counts[made] == features.counts[read])
    with np.errstate(all="ignore"):
        apart = np.abs(features.rows[made] - features.rows[read]).max(axis=1, initial=0.0)
        near = known & are_multiples(features.sizes[made], features.sizes[read], POWERS * limit) & (apart <= limit)
        moved = sketch_distance(features.sketches[made], features.sketches[read]) > SAME_SKETCH + limit
        reordered = moved & (features.sketched[made] == features.sketched[read]) & ~views
    # Values that cannot be compared are equal if one is a view of the other.
    return np.asarray((near & ~reordered) | (views & ~known))


def _merge_equal(features: Features, sets: DisjointSets) -> None:
    """Merge strong values that are equal, also of different origins: tied weights, results computed twice."""
    strong = np.flatnonzero(features.strong)
    order = strong[np.argsort(features.rows[strong, 0], kind="stable")]
    rows, counts = features.rows[order], features.counts[order]
    near = DisjointSets(len(order))
    for step in range(1, min(_NEIGHBOURS, len(order) - 1) + 1):
        close = np.abs(rows[step:] - rows[:-step]).max(axis=1) <= SAME * WEIGHTS.max()
        for at in np.flatnonzero(close & (counts[step:] == counts[:-step])):
            near.merge(int(at), int(at + step))
    labels, count = near.number_sets()
    clusters: list[list[int]] = [[] for _ in range(count)]
    for label, value in zip(labels.tolist(), order.tolist(), strict=True):
        clusters[label].append(value)
    for cluster in clusters:
        if len(cluster) > 1:
            _merge_same_order(features, sets, cluster)


def _merge_same_order(features: Features, sets: DisjointSets, values: list[int]) -> None:
    """Merge values with equal sums that have their elements in the same order, as far as sketches tell."""
    left = np.array(values, dtype=np.int64)
    for _ in range(_ORDERS):
        if len(left) < 2:
            return
        known = np.isfinite(features.sketches[left, 0])
        first = int(left[np.argmax(known)])
        apart = sketch_distance(features.sketches[left], features.sketches[first]) > SAME_SKETCH
        other = apart & (features.sketched[left] == features.sketched[first])
        for value in left[~other].tolist():
            sets.merge(first, value)
        left = left[other]


@dataclass(frozen=True, slots=True)
class Composition:
    """A tensor that is split into parts, or concatenated of them, with the operators that do it."""

    whole: int
    parts: tuple[int, ...]
    ops: tuple[int, ...]
    is_split: bool
    """Whether the whole is split; else it is concatenated."""


def find_compositions(graph: Graph, features: Features, equivalence: Equivalence) -> list[Composition]:
    """Return the splits and concatenations of a run."""
    return [*_find_concatenations(graph, features, equivalence), *_find_splits(graph, features, equivalence)]


def _find_concatenations(graph: Graph, features: Features, equivalence: Equivalence) -> Iterator[Composition]:
    for op, (reads, makes) in enumerate(zip(graph.reads, graph.makes, strict=True)):
        if equivalence.is_movement[op] or len(makes) != 1 or len(reads) < 2:
            continue
        parts = graph.run.ops[op].inputs
        if set(parts) == set(reads) and _add_up(features, makes[0], parts):
            yield Composition(makes[0], tuple(parts), (op,), is_split=False)


def _find_splits(graph: Graph, features: Features, equivalence: Equivalence) -> Iterator[Composition]:
    """Yield single operators that split a tensor, and groups of operators that take one part each."""
    takers: defaultdict[int, list[int]] = defaultdict(list)
    for op, (reads, makes) in enumerate(zip(graph.reads, graph.makes, strict=True)):
        if equivalence.is_movement[op] or len(reads) != 1 or not makes:
            continue
        if len(makes) > 1 and _add_up(features, reads[0], makes):
            yield Composition(reads[0], makes, (op,), is_split=True)
        elif len(makes) == 1 and features.counts[makes[0]] < features.counts[reads[0]]:
            takers[int(equivalence.entity_of[reads[0]])].append(op)
    for ops in takers.values():
        parts = tuple(graph.makes[op][0] for op in ops)
        whole = graph.reads[ops[0]][0]
        if len(ops) > 1 and _add_up(features, whole, parts):
            yield Composition(whole, parts, tuple(ops), is_split=True)


def _add_up(features: Features, whole: int, parts: Sequence[int]) -> bool:
    if not features.strong[whole] or features.counts[list(parts)].sum() != features.counts[whole]:
        return False
    a, b = features.sums[whole], features.sums[list(parts)].sum(axis=0)
    nonzeros, _, size, square, _, fourth = a
    sizes = np.array([nonzeros, size, size, square, np.sqrt(square * fourth), fourth])
    return bool((np.abs(a - b) <= SAME * sizes).all())
