"""A run as a graph: which values each operator reads and makes.

Memory that is written in part belongs to every operator that wrote to it, and each of them reads what it held before,
so no dependency gets lost in chains of writes. A value that an operator returns and others made, as the view of a view
that is the tensor itself, is not made by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.model.run import Run


@dataclass(frozen=True, slots=True)
class Graph:
    """Operators and values by number, as in the run."""

    run: Run
    reads: Sequence[tuple[int, ...]]
    """By operator: values it reads, each once."""
    makes: Sequence[tuple[int, ...]]
    """By operator: values it makes or changes."""
    makers: Sequence[tuple[int, ...]]
    """By value: operators; none for what was there before the step."""
    readers: Sequence[tuple[int, ...]]
    """By value: operators."""
    is_output: Sequence[bool]
    """By value: whether the step returned it, or left it behind in a parameter or buffer."""


def to_graph(run: Run) -> Graph:
    """Return the graph of a run."""
    reads: list[dict[int, None]] = [dict.fromkeys(op.inputs) for op in run.ops]
    makes: list[dict[int, None]] = [{} for _ in run.ops]
    for value in run.values:
        before = value.previous
        for maker in value.writers if before is not None else () if value.producer is None else (value.producer,):
            makes[maker][value.id] = None
            if before is not None:
                reads[maker][before] = None
    makers, readers = _invert(makes, len(run.values)), _invert(reads, len(run.values))
    return Graph(run, [*map(tuple, reads)], [*map(tuple, makes)], makers, readers, _outputs(run))


def _invert(rows: Sequence[dict[int, None]], count: int) -> list[tuple[int, ...]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, row in enumerate(rows):
        for value in row:
            found[value].append(number)
    return [*map(tuple, found)]


def _outputs(run: Run) -> list[bool]:
    """Return which values outlive the step: what it returned, and the last of each parameter or buffer it wrote to."""
    kept = {value.storage for value in run.values if value.kind in ("parameter", "buffer")}
    last: dict[tuple[int, object], int] = {}
    for value in run.values:
        if value.storage in kept and value.producer is not None:
            last[value.storage, (value.shape, value.strides, value.offset)] = value.id
    lasting = set(last.values())
    return [value.id in lasting or (value.name or "").startswith("output") for value in run.values]
