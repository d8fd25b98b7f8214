"""Tensors that are put together from others or taken apart: power sums add up, so a whole equals all its parts.

Operators that do nothing else only move data, like views and copies do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from joulediff.matching.classes import Classes
from joulediff.matching.features import SAME, Features
from joulediff.matching.graph import Graph


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
