"""Which work equals which, by the tensors that flow through it and never by names."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from joulediff.errors import JoulediffError
from joulediff.findings import Region
from joulediff.matching.anchors import Side, find_anchors
from joulediff.matching.classes import find_classes
from joulediff.matching.features import find_features
from joulediff.matching.given import refuse_other_inputs
from joulediff.matching.graph import to_graph
from joulediff.matching.joint import look_through_parts, to_joint
from joulediff.matching.parts import find_parts
from joulediff.matching.regions import find_regions
from joulediff.matching.support import drop_unsupported
from joulediff.matching.weak import add_weak_anchors
from joulediff.runs import Run

# How far the features of equal tensors may lie apart, beside the rounding of their float types.
TOLERANCE = 1e-3


def match(a: Run, b: Run, *, tolerance: float = TOLERANCE) -> list[Region]:
    """Return the regions of two runs, in the order of their first operators.

    Every operator is in one region, or in none if nothing in the other run accounts for it. Runs without signatures,
    and runs that were given different inputs, are refused.
    """
    if not 0 <= tolerance < 1:
        raise JoulediffError(f"cannot match with a tolerance of {tolerance:g}", fix="give a number from 0 to 1")
    for run in (a, b):
        _refuse_unsigned(run)
    with _without_collector():
        sides = _to_side(a), _to_side(b)
        refuse_other_inputs(*sides, tolerance)
        anchors = find_anchors(*sides, tolerance)
        joint = to_joint(*sides, anchors)
        drop_unsupported(joint, anchors)
        look_through_parts(joint)
        add_weak_anchors(joint, tolerance)
        return find_regions(joint)


def _to_side(run: Run) -> Side:
    graph = to_graph(run)
    features = find_features(graph)
    classes = find_classes(graph, features)
    return Side(graph, features, classes, find_parts(graph, features, classes))


def _refuse_unsigned(run: Run) -> None:
    if not run.ops:
        found = next((each for each in run.passes if each.name == "captured" and each.status != "done"), None)
        why = f": its captured pass was {found.status} ({found.note or 'no reason given'})" if found else ""
        raise JoulediffError(f"{run.label} has no operators to match{why}", fix="record it again")
    if all(value.signature is None for value in run.values):
        raise JoulediffError(
            f"{run.label} has no signatures of its tensors, so nothing in it can be recognised", fix="record it again"
        )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python from looking for cycles: lists are made by the hundred thousand here, and none of them has any."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
