"""Anchors: pairs of classes, one of each run, that hold the same tensor.

Two classes are paired if each is the nearest of the other within the tolerance, and clearly nearer than the next. If
several candidates are about as near, their context decides: the anchors that their makers read and their readers make.
Weak values (constants, masks, indices, single numbers) are no candidates here; `anchor_support` pairs them by context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from joulediff.matching.equivalence import POWERS, Composition, Equivalence
from joulediff.matching.features import Features, are_multiples
from joulediff.matching.graph import Graph

# The nearest candidate is taken without regard to context if the next one is this many times as far.
CLEARLY = 3.0
# Distances below this come from the order of summation alone.
EXACT = 1e-8
# Factors on the rounding error: errors that add up along a deep program, and those of single elements over means.
DEPTH, SINGLE = 4.0, 16.0
_CANDIDATES = 6
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class AnalysedRun:
    """One run with the facts that matching derives from it alone."""

    graph: Graph
    features: Features
    equivalence: Equivalence
    compositions: Sequence[Composition]


Candidates = dict[int, dict[int, float]]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A class of a, a class of b, and the distance of their features."""

    a: int
    b: int
    distance: float


def find_anchors(a: AnalysedRun, b: AnalysedRun, tolerance: float) -> list[Anchor]:
    """Return the pairs of classes that hold equal tensors."""
    from_a = _find_candidates(a, b, tolerance)
    from_b: Candidates = defaultdict(dict)
    for one, others in from_a.items():
        for other, distance in others.items():
            from_b[other][one] = distance
    pairs = dict(_find_clear_pairs(from_a, from_b))
    if all(one in pairs for one in from_a):
        return [Anchor(one, other, from_a[one][other]) for one, other in pairs.items()]
    around_a, around_b = _find_neighbours(a), _find_neighbours(b)
    for _ in range(_ROUNDS):
        more = dict(_find_pairs_by_context(from_a, from_b, pairs, around_a, around_b))
        if not more:
            break
        pairs |= more
    return [Anchor(one, other, from_a[one][other]) for one, other in pairs.items()]


def _find_candidates(a: AnalysedRun, b: AnalysedRun, tolerance: float) -> Candidates:
    """Return for each class of a the nearest classes of b within the tolerance, with their distances."""
    values_a, values_b = _representatives(a), _representatives(b)
    found: Candidates = defaultdict(dict)
    if not len(values_a) or not len(values_b):
        return found
    rows_a, rows_b = a.features.rows[values_a], b.features.rows[values_b]
    slack_a, slack_b = slack_of(a, values_a), slack_of(b, values_b)
    reach = tolerance + max(slack_a.max(), slack_b.max())
    for table, rows, swapped in ((rows_b, rows_a, False), (rows_a, rows_b, True)):
        distances, places = find_nearest(table, rows, count=min(_CANDIDATES, len(table)), within=reach)
        at, nth = np.nonzero(np.isfinite(distances))
        ours, theirs = (places[at, nth], at) if swapped else (at, places[at, nth])
        limit = tolerance + np.maximum(slack_a[ours], slack_b[theirs])
        near = distances[at, nth] <= limit
        near &= are_multiples(a.features.sizes[values_a[ours]], b.features.sizes[values_b[theirs]], POWERS * limit)
        ones, others = a.equivalence.class_of[values_a[ours[near]]], b.equivalence.class_of[values_b[theirs[near]]]
        for one, other, distance in zip(ones.tolist(), others.tolist(), distances[at, nth][near].tolist(), strict=True):
            found[one][other] = min(distance, found[one].get(other, np.inf))
    return found


def slack_of(side: AnalysedRun, values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how far rounding may move features. Errors add up along a program and average out in large tensors."""
    return side.features.rounding[values] * (DEPTH + SINGLE / np.sqrt(np.fmax(1.0, side.features.sizes[values])))


def _representatives(side: AnalysedRun) -> npt.NDArray[np.int64]:
    """Return strong values: one for each float type in each class."""
    strong = np.flatnonzero(side.features.strong)
    keys = np.stack(
        [side.equivalence.class_of[strong], np.round(np.log2(side.features.rounding[strong] + 2e-16))], axis=1
    )
    _, first = np.unique(keys, axis=0, return_index=True)
    return strong[np.sort(first)]


def _find_clear_pairs(from_a: Candidates, from_b: Candidates) -> Iterator[tuple[int, int]]:
    for one, others in from_a.items():
        other = _clearly_nearest(others)
        if other is not None and _clearly_nearest(from_b[other]) == one:
            yield one, other


def _clearly_nearest(candidates: Mapping[int, float]) -> int | None:
    ranked = sorted(candidates.items(), key=lambda pair: (pair[1], pair[0]))
    if not ranked:
        return None
    if len(ranked) == 1 or ranked[1][1] > CLEARLY * max(ranked[0][1], EXACT):
        return ranked[0][0]
    return None


def _find_neighbours(side: AnalysedRun) -> list[tuple[set[int], set[int]]]:
    """Return for each class the classes that its makers read, and those that its readers make."""
    class_of, graph = side.equivalence.class_of.tolist(), side.graph
    found: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in range(side.equivalence.class_count)]
    for op in range(len(graph.run.ops)):
        if side.equivalence.is_movement[op]:
            continue
        reads, makes = {class_of[value] for value in graph.reads[op]}, {class_of[value] for value in graph.makes[op]}
        for each in makes:
            found[each][0].update(reads)
        for each in reads:
            found[each][1].update(makes)
    return found


def _find_pairs_by_context(
    from_a: Candidates,
    from_b: Candidates,
    pairs: Mapping[int, int],
    around_a: Sequence[tuple[set[int], set[int]]],
    around_b: Sequence[tuple[set[int], set[int]]],
) -> Iterator[tuple[int, int]]:
    """Yield pairs of the remaining candidates where each is the best of the other by context."""
    taken = set(pairs.values())

    def score(one: int, other: int) -> tuple[int, float]:
        shared = sum(
            len({pairs[each] for each in ours if each in pairs} & theirs)
            for ours, theirs in zip(around_a[one], around_b[other], strict=True)
        )
        return -shared, from_a[one][other]

    def best_of_b(one: int) -> int | None:
        return _best({other: score(one, other) for other in from_a[one] if other not in taken})

    def best_of_a(other: int) -> int | None:
        return _best({one: score(one, other) for one in from_b[other] if one not in pairs})

    for one in from_a:
        if one not in pairs:
            other = best_of_b(one)
            if other is not None and best_of_a(other) == one:
                yield one, other


def _best(scores: Mapping[int, tuple[int, float]]) -> int | None:
    """Return the candidate that shares the most context; None if none shares any, or another one is as good."""
    ranked = sorted(scores.items(), key=lambda pair: pair[1])
    if not ranked or ranked[0][1][0] == 0:
        return None
    if len(ranked) > 1 and ranked[1][1][0] == ranked[0][1][0] and ranked[1][1][1] <= CLEARLY * ranked[0][1][1]:
        return None
    return ranked[0][0]


Floats = npt.NDArray[np.float64]

# Up to this many comparisons of rows, brute force takes less time than the import of SciPy.
FEW = 1_000_000
_CHUNK = 256


def find_nearest(
    table: Floats, rows: Floats, *, count: int = 1, within: float = np.inf
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the distances and the places in `table` of the `count` rows nearest to each row, the nearest first.

    The distance is infinite where it is beyond `within`, or where the table has fewer rows.
    """
    if len(table) * len(rows) > FEW:
        from scipy.spatial import cKDTree

        found = cKDTree(table).query(rows, k=count, p=np.inf, distance_upper_bound=within)
        distances, places = (np.asarray(each).reshape(len(rows), count) for each in found)
        return distances, places
    distances = np.full((len(rows), count), np.inf)
    places = np.full((len(rows), count), len(table), dtype=np.int64)
    kept = min(count, len(table))
    for begin in range(0, len(rows), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        apart = np.abs(rows[part, None, :] - table[None, :, :]).max(axis=2, initial=0.0)
        nearest = np.argsort(apart, axis=1, kind="stable")[:, :kept]
        distances[part, :kept] = np.take_along_axis(apart, nearest, axis=1)
        places[part, :kept] = nearest
    distances[distances >= within] = np.inf
    return distances, places
