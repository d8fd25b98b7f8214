"""Values of one run that are the same tensor: views, copies, casts, repetitions, and what is computed twice.

An operator that makes nothing but what it was given moves data. Equality within a run is exact but for the order of
summing; only a cast may change a value, by the rounding of its float type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from joulediff.matching.features import SAME, WEIGHTS, Features, are_multiples
from joulediff.matching.graph import Graph
from joulediff.matching.unions import Unions

Ints = npt.NDArray[np.int64]

# An operator with more pairs of values is not looked at: a step of an optimizer over all weights moves nothing.
_MOST_PAIRS = 64
# Sizes are made of fourth powers, which err so many times as much.
POWERS = 4.0
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
    moves = np.array([not makes and bool(reads) for reads, makes in zip(graph.reads, graph.makes, strict=True)])
    ops, made, read = _pairs(graph)
    copies = _are_copies(graph, features, ops, made, read)
    sources: dict[int, dict[int, int]] = {}
    for op, one, other in zip(ops[copies].tolist(), made[copies].tolist(), read[copies].tolist(), strict=True):
        sources.setdefault(op, {}).setdefault(one, other)
    for op, found in sources.items():
        if len(found) == len(graph.makes[op]):
            moves[op] = True
            for one, other in found.items():
                unions.join(one, other)
    entity, entities = unions.numbered()
    _join_equal(features, unions)
    of, count = unions.numbered()
    return Classes(of, count, entity, entities, moves.astype(bool))


def _pairs(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Return each operator with each value it makes and each it reads; few of those that have very many."""
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
    """Return where a value that an operator makes is one that it reads."""
    values = graph.run.values
    known = features.known[made] & features.known[read]
    types: dict[str, int] = {}
    dtype = np.array([types.setdefault(value.dtype, len(types)) for value in values], dtype=np.int64)
    alone = np.array([len(reads) == 1 for reads in graph.reads], dtype=bool)
    casts = (dtype[made] != dtype[read]) & alone[ops]
    limit = np.where(casts, np.maximum(SAME, np.maximum(features.rounding[made], features.rounding[read])), SAME)
    with np.errstate(all="ignore"):
        apart = np.abs(features.rows[made] - features.rows[read]).max(axis=1, initial=0.0)
        near = known & are_multiples(features.sizes[made], features.sizes[read], POWERS * limit) & (apart <= limit)
    # Nothing is known of what some hold, but a view has the memory of what it is a view of.
    storage = np.array([value.storage for value in values], dtype=np.int64)
    fresh = np.array([value.previous is None for value in values], dtype=bool)
    views = ~known & (storage[made] == storage[read]) & fresh[made] & (features.counts[made] == features.counts[read])
    return np.asarray(near | views)


def _join_equal(features: Features, unions: Unions) -> None:
    """Join strong values that are equal wherever they come from: tied weights, or the same computed twice."""
    strong = np.flatnonzero(features.strong)
    order = strong[np.argsort(features.rows[strong, 0], kind="stable")]
    rows, counts = features.rows[order], features.counts[order]
    for step in range(1, min(_NEIGHBOURS, len(order) - 1) + 1):
        near = np.abs(rows[step:] - rows[:-step]).max(axis=1) <= SAME * WEIGHTS.max()
        for at in np.flatnonzero(near & (counts[step:] == counts[:-step])):
            unions.join(int(order[at]), int(order[at + step]))


@dataclass(frozen=True, slots=True)
class Parts:
    """A whole and its parts, by value, and the operators between them."""

    whole: int
    parts: tuple[int, ...]
    ops: tuple[int, ...]
    is_split: bool
    """The whole is taken apart; else it is put together."""


def find_parts(graph: Graph, features: Features, classes: Classes) -> list[Parts]:
    """Return where a run takes tensors apart and puts them together."""
    return [*_find_joins(graph, features, classes), *_find_splits(graph, features, classes)]


def _find_joins(graph: Graph, features: Features, classes: Classes) -> Iterator[Parts]:
    for op, (reads, makes) in enumerate(zip(graph.reads, graph.makes, strict=True)):
        if classes.moves[op] or len(makes) != 1 or len(reads) < 2:
            continue
        parts = graph.run.ops[op].inputs
        if set(parts) == set(reads) and _add_up(features, makes[0], parts):
            yield Parts(makes[0], tuple(parts), (op,), is_split=False)


def _find_splits(graph: Graph, features: Features, classes: Classes) -> Iterator[Parts]:
    """Yield single operators that take a tensor apart, and those that do it together, one part each."""
    takers: defaultdict[int, list[int]] = defaultdict(list)
    for op, (reads, makes) in enumerate(zip(graph.reads, graph.makes, strict=True)):
        if classes.moves[op] or len(reads) != 1 or not makes:
            continue
        if len(makes) > 1 and _add_up(features, reads[0], makes):
            yield Parts(reads[0], makes, (op,), is_split=True)
        elif len(makes) == 1 and features.counts[makes[0]] < features.counts[reads[0]]:
            takers[int(classes.entity[reads[0]])].append(op)
    for ops in takers.values():
        parts = tuple(graph.makes[op][0] for op in ops)
        whole = graph.reads[ops[0]][0]
        if len(ops) > 1 and _add_up(features, whole, parts):
            yield Parts(whole, parts, tuple(ops), is_split=True)


def _add_up(features: Features, whole: int, parts: Sequence[int]) -> bool:
    if not features.strong[whole] or features.counts[list(parts)].sum() != features.counts[whole]:
        return False
    a, b = features.sums[whole], features.sums[list(parts)].sum(axis=0)
    nonzeros, _, size, square, _, fourth = a
    sizes = np.array([nonzeros, size, size, square, np.sqrt(square * fourth), fourth])
    return bool((np.abs(a - b) <= SAME * sizes).all())
