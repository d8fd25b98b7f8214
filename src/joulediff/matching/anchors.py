"""Anchors: pairs of classes, one of each run, that hold the same tensor.

Two classes are paired if each is the nearest of the other within the tolerance, and clearly nearer than the next. If
several candidates are about as near, their context decides: the anchors that their makers read and their readers make.
Sketches are compared first: two classes are near if any two of their views have their elements in the same order and
nearly the same values. Classes without such views are compared by the features that do not depend on the order: a
tensor may be laid out in another order in the other run. These pairs are checked by `anchor_support`.
Weak values (constants, masks, indices, single numbers) are no candidates here; `anchor_support` pairs them by context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np
import numpy.typing as npt

from joulediff.matching.equivalence import POWERS, Composition, Equivalence
from joulediff.matching.features import SAME_SKETCH, Features, sketch_distance
from joulediff.matching.graph import Graph
from joulediff.model.run import Value

# The nearest candidate is taken without regard to context if the next one is this many times as far.
CLEARLY = 3.0
# Distances below this come from the order of summation alone.
EXACT = 1e-8
# Factors on the rounding error: errors that add up along a deep program, and those of single elements over means.
DEPTH, SINGLE = 4.0, 16.0
# The same for the distance of sketches, which does not average over the elements. Unrelated tensors are 1.4 apart.
DRIFT = 32.0
# Largest distance of equal tensors without their means.
CORRELATED = 0.5
_CANDIDATES = 6
_ROUNDS = 4
# Up to this many tensors of one size it is not worth looking for those that nearly equal each other.
_MANY = 2000


@dataclass(frozen=True, slots=True)
class AnalysedRun:
    """One run with the facts that matching derives from it alone."""

    graph: Graph
    features: Features
    equivalence: Equivalence
    compositions: Sequence[Composition]


Candidates = dict[int, dict[int, float]]
Around = Sequence[tuple[set[int], set[int]]]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A class of a, a class of b, and their distance."""

    a: int
    b: int
    distance: float
    has_order: bool
    """Whether the elements are known to be in the same order: the sketches agree, not only the sums."""


def find_anchors(a: AnalysedRun, b: AnalysedRun, tolerance: float) -> list[Anchor]:
    """Return the pairs of classes that hold equal tensors."""
    around = _Neighbours(a), _Neighbours(b)
    by_sketch = _find_by_sketch(a, b, tolerance)
    pairs = _pair(by_sketch, {}, around, floor=SAME_SKETCH)
    found = [Anchor(one, other, by_sketch[one][other], True) for one, other in pairs.items()]
    by_sums = _find_by_sums(a, b, tolerance, pairs)
    more = _pair(by_sums, pairs, around, floor=EXACT)
    return found + [Anchor(one, other, by_sums[one][other], False) for one, other in more.items()]


def _pair(
    from_a: Candidates, given: Mapping[int, int], around: tuple[_Neighbours, _Neighbours], *, floor: float
) -> dict[int, int]:
    """Return pairs of candidates that are clearly the nearest of each other, or the nearest by context."""
    from_b: Candidates = defaultdict(dict)
    for one, others in from_a.items():
        for other, distance in others.items():
            from_b[other][one] = distance
    found = dict(_find_clear_pairs(from_a, from_b, floor))
    for _ in range(_ROUNDS):
        if all(one in found for one in from_a):
            break
        more = dict(_find_pairs_by_context(from_a, from_b, {**given, **found}, around[0].get(), around[1].get()))
        if not more:
            break
        found |= more
    return found


def _find_by_sketch(a: AnalysedRun, b: AnalysedRun, tolerance: float) -> Candidates:
    """Return for each class of a the classes of b with nearly the same sketch, with their distances."""
    values_a, values_b = _sketched(a), _sketched(b)
    found: Candidates = defaultdict(dict)
    counts_a, counts_b = a.features.sketched[values_a], b.features.sketched[values_b]
    for count in np.intersect1d(counts_a, counts_b):
        ours, theirs = _distinct(a, values_a[counts_a == count]), _distinct(b, values_b[counts_b == count])
        if not len(ours) or not len(theirs):
            continue
        slack_a, slack_b = DRIFT * a.features.rounding[ours], DRIFT * b.features.rounding[theirs]
        reach = tolerance + SAME_SKETCH + max(slack_a.max(), slack_b.max())
        table_a, table_b = a.features.sketches[ours], b.features.sketches[theirs]
        for table, rows, swapped in ((table_b, table_a, False), (table_a, table_b, True)):
            distances, places = find_nearest(table, rows, count=min(_CANDIDATES, len(table)), within=reach, norm=2)
            at, nth = np.nonzero(np.isfinite(distances))
            mine, other = (places[at, nth], at) if swapped else (at, places[at, nth])
            near = distances[at, nth] <= tolerance + SAME_SKETCH + np.maximum(slack_a[mine], slack_b[other])
            centred = sketch_distance(a.features.centred[ours[mine]], b.features.centred[theirs[other]])
            near &= centred <= CORRELATED
            _keep_nearest(found, a, b, ours[mine[near]], theirs[other[near]], distances[at, nth][near])
    return found


def _distinct(side: AnalysedRun, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return values without those that very many others equal nearly, as in a loop that converges.

    Candidates for these would be many, and none of them clearly the nearest.
    """
    if len(values) <= _MANY:
        return values
    rough = np.floor(side.features.sketches[values] / (16 * SAME_SKETCH)).astype(np.int64)
    _, place, counts = np.unique(rough, axis=0, return_inverse=True, return_counts=True)
    return values[counts[place.ravel()] <= 2 * _CANDIDATES]


def _find_by_sums(a: AnalysedRun, b: AnalysedRun, tolerance: float, pairs: Mapping[int, int]) -> Candidates:
    """Return for each class of a without a pair the nearest classes of b by sums, with their distances."""
    values_a, values_b = _representatives(a, set(pairs)), _representatives(b, set(pairs.values()))
    found: Candidates = defaultdict(dict)
    if not len(values_a) or not len(values_b):
        return found
    rows_a, rows_b = a.features.rows[values_a], b.features.rows[values_b]
    slack_a, slack_b = slack_of(a, values_a), slack_of(b, values_b)
    reach = tolerance + max(slack_a.max(), slack_b.max())
    orders = _Orders(a), _Orders(b)
    for table, rows, swapped in ((rows_b, rows_a, False), (rows_a, rows_b, True)):
        distances, places = find_nearest(table, rows, count=min(_CANDIDATES, len(table)), within=reach)
        at, nth = np.nonzero(np.isfinite(distances))
        ours, theirs = (places[at, nth], at) if swapped else (at, places[at, nth])
        limit = tolerance + np.maximum(slack_a[ours], slack_b[theirs])
        near = distances[at, nth] <= limit
        sizes_a, sizes_b = a.features.sizes[values_a[ours]], b.features.sizes[values_b[theirs]]
        near &= np.abs(sizes_a - sizes_b) <= POWERS * limit * np.maximum(sizes_a, sizes_b)
        _keep_nearest(found, a, b, values_a[ours[near]], values_b[theirs[near]], distances[at, nth][near])
    return {
        one: kept
        for one, others in found.items()
        if (kept := {other: d for other, d in others.items() if not are_contrary(*orders, one, other, d)})
    }


def _keep_nearest(
    found: Candidates,
    a: AnalysedRun,
    b: AnalysedRun,
    ours: npt.NDArray[np.int64],
    theirs: npt.NDArray[np.int64],
    distances: npt.NDArray[np.float64],
) -> None:
    ones, others = a.equivalence.class_of[ours].tolist(), b.equivalence.class_of[theirs].tolist()
    for one, other, distance in zip(ones, others, distances.tolist(), strict=True):
        found[one][other] = min(distance, found[one].get(other, np.inf))


class _Orders:
    """The ways in which the elements of each class of a run are ordered."""

    def __init__(self, side: AnalysedRun) -> None:
        self.shapes: dict[int, set[Order]] = defaultdict(set)
        self.is_given = set[int]()
        values, class_of = side.graph.run.values, side.equivalence.class_of.tolist()
        for value in np.flatnonzero(np.isfinite(side.features.sketches[:, 0])).tolist():
            self.shapes[class_of[value]].add(order_of(values[value]))
        for value, makers in enumerate(side.graph.makers):
            if not makers:
                self.is_given.add(class_of[value])


def are_contrary(a: _Orders, b: _Orders, one: int, other: int, distance: float) -> bool:
    """Return whether two classes have views of the same order, which would have equal sketches if they were equal.

    Two shapes have the same order if one is the other with neighbouring dimensions merged. Weights that were given to
    both runs may be transposed in one of them: exact sums are enough.
    """
    if distance <= EXACT and one in a.is_given and other in b.is_given:
        return False
    return any(have_same_order(x, y) for x in a.shapes.get(one, ()) for y in b.shapes.get(other, ()))


Order = frozenset[int]


def order_of(value: Value) -> Order:
    """Return the strides that a value would have if it were contiguous, and the number of its elements."""
    return frozenset(accumulate(reversed(value.shape if value.repeats == 1 else ()), mul, initial=1))


def have_same_order(a: Order, b: Order) -> bool:
    """Return whether one of two shapes is the other one with neighbouring dimensions merged."""
    return max(a) == max(b) > 1 and (a <= b or b <= a)


def slack_of(side: AnalysedRun, values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how far rounding may move features. Errors add up along a program and average out in large tensors."""
    return side.features.rounding[values] * (DEPTH + SINGLE / np.sqrt(np.fmax(1.0, side.features.sizes[values])))


def _sketched(side: AnalysedRun) -> npt.NDArray[np.int64]:
    """Return strong values with a sketch: one for each sketch in each class."""
    strong = np.flatnonzero(side.features.strong & np.isfinite(side.features.sketches[:, 0]))
    signature = np.array([side.graph.run.values[value].signature for value in strong.tolist()], dtype=np.int64)
    keys = np.stack([side.equivalence.class_of[strong], signature], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    return strong[np.sort(first)]


def _representatives(side: AnalysedRun, taken: set[int]) -> npt.NDArray[np.int64]:
    """Return strong values of classes that are not taken: one for each float type and size in each class."""
    strong = np.flatnonzero(side.features.strong)
    if taken:
        strong = strong[~np.isin(side.equivalence.class_of[strong], np.fromiter(taken, dtype=np.int64))]
    types = np.round(np.log2(side.features.rounding[strong] + 2e-16))
    sizes = np.round(64 * np.log2(side.features.sizes[strong]))
    _, first = np.unique(np.stack([side.equivalence.class_of[strong], types, sizes], axis=1), axis=0, return_index=True)
    return strong[np.sort(first)]


def _find_clear_pairs(from_a: Candidates, from_b: Candidates, floor: float) -> Iterator[tuple[int, int]]:
    for one, others in from_a.items():
        other = _clearly_nearest(others, floor)
        if other is not None and _clearly_nearest(from_b[other], floor) == one:
            yield one, other


def _clearly_nearest(candidates: Mapping[int, float], floor: float) -> int | None:
    ranked = sorted(candidates.items(), key=lambda pair: (pair[1], pair[0]))
    if not ranked:
        return None
    if len(ranked) == 1 or ranked[1][1] > CLEARLY * max(ranked[0][1], floor):
        return ranked[0][0]
    return None


class _Neighbours:
    """By class of a run: the classes that its makers read, and those that its readers make; found when needed."""

    def __init__(self, side: AnalysedRun) -> None:
        self._side = side
        self._found: list[tuple[set[int], set[int]]] = []

    def get(self) -> Around:
        """Return the neighbours of every class."""
        if not self._found:
            self._found = self._find()
        return self._found

    def _find(self) -> list[tuple[set[int], set[int]]]:
        side = self._side
        class_of, graph = side.equivalence.class_of.tolist(), side.graph
        found: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in range(side.equivalence.class_count)]
        for op, moves in enumerate(side.equivalence.is_movement.tolist()):
            if moves:
                continue
            reads = {class_of[value] for value in graph.reads[op]}
            makes = {class_of[value] for value in graph.makes[op]}
            for each in makes:
                found[each][0].update(reads)
            for each in reads:
                found[each][1].update(makes)
        return found


def _find_pairs_by_context(
    from_a: Candidates,
    from_b: Candidates,
    pairs: Mapping[int, int],
    around_a: Around,
    around_b: Around,
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
    table: Floats, rows: Floats, *, count: int = 1, within: float = np.inf, norm: float = np.inf
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the distances and the places in `table` of the `count` rows nearest to each row, the nearest first.

    The distance, the largest difference or the Euclidean one (`norm` 2), is infinite where it is beyond `within`, or
    where the table has fewer rows.
    """
    if len(table) * len(rows) > FEW:
        from scipy.spatial import cKDTree

        found = cKDTree(table).query(rows, k=count, p=norm, distance_upper_bound=within)
        distances, places = (np.asarray(each).reshape(len(rows), count) for each in found)
        return distances, places
    distances = np.full((len(rows), count), np.inf)
    places = np.full((len(rows), count), len(table), dtype=np.int64)
    kept = min(count, len(table))
    for begin in range(0, len(rows), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        if norm == 2:
            apart = _euclidean(rows[part], table)
        else:
            apart = np.abs(rows[part, None, :] - table[None, :, :]).max(axis=2, initial=0.0)
        nearest = np.argpartition(apart, kept - 1, axis=1)[:, :kept]
        order = np.argsort(np.take_along_axis(apart, nearest, axis=1), axis=1, kind="stable")
        nearest = np.take_along_axis(nearest, order, axis=1)
        distances[part, :kept] = np.take_along_axis(apart, nearest, axis=1)
        places[part, :kept] = nearest
    distances[distances >= within] = np.inf
    return distances, places


def _euclidean(rows: Floats, table: Floats) -> Floats:
    squares = (rows**2).sum(axis=1)[:, None] + (table**2).sum(axis=1) - 2 * (rows @ table.T)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
