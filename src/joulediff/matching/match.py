"""Which work equals which, by the tensors that flow through it and never by names."""

from __future__ import annotations

from joulediff.findings import Region
from joulediff.matching.anchors import Side, find_anchors
from joulediff.matching.classes import find_classes
from joulediff.matching.features import find_features
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
    """Return the regions of two runs. Operators in none of them have no counterpart."""
    sides = _to_side(a), _to_side(b)
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
