"""A run as a graph: the values that each operator reads and makes.

Every operator that writes a part of a tensor's memory makes its new value and reads the old one, so chains of writes
lose no dependency. An operator that returns a value of other operators, such as a view that is the tensor itself, does
not make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulediff.model.run import Run


@dataclass(frozen=True, slots=True)
class Graph:
    """Which operator reads and makes which value. Operators and values have the numbers of the run."""

    run: Run
    reads: Sequence[tuple[int, ...]]
    """By operator: the values it reads, each once."""
    makes: Sequence[tuple[int, ...]]
    """By operator: the values it makes or changes."""
    makers: Sequence[tuple[int, ...]]
    """By value: the operators that make it; none for a tensor that existed before the step."""
    readers: Sequence[tuple[int, ...]]
    """By value: the operators that read it."""
    is_output: Sequence[bool]
    """By value: whether the step returned it, or left it in a parameter or buffer."""


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
    """Return which values outlive the step: its outputs, and the last value of each parameter or buffer it wrote to."""
    kept = {value.storage for value in run.values if value.kind in ("parameter", "buffer")}
    last: dict[tuple[int, object], int] = {}
    for value in run.values:
        if value.storage in kept and value.producer is not None:
            last[value.storage, (value.shape, value.strides, value.offset)] = value.id
    lasting = set(last.values())
    return [value.id in lasting or (value.name or "").startswith("output") for value in run.values]
