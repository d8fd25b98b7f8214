"""Which work equals which, by the tensors that flow through it and never by names."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from joulediff.matching.anchor_support import add_weak_anchors, drop_unsupported
from joulediff.matching.anchors import Side, find_anchors, find_nearest, slack_of
from joulediff.matching.equivalence import find_classes, find_parts
from joulediff.matching.features import find_features, is_same_weak_value
from joulediff.matching.graph import to_graph
from joulediff.matching.joint_graph import look_through_parts, to_joint
from joulediff.matching.regions import find_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.options import DiffOptions
from joulediff.model.run import Run

# How far the features of equal tensors may lie apart, beside the rounding of their float types.
TOLERANCE = DiffOptions.tolerance


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


# Some weights may differ, as those of a part that was trained; if more than this share do, it is another model.
MOST_WEIGHTS = 0.5
# A single number may be stored in float16 in one program; bfloat16 rounds by 2**-8.
SINGLE_NUMBER = 2**-7
# So many weak inputs are compared each with each.
_MOST = 200


def refuse_other_inputs(a: Side, b: Side, tolerance: float) -> None:
    """Raise for runs whose inputs differ, or most of whose weights do, with the first that does."""
    ours, theirs = _given(a), _given(b)
    lonely_a, lonely_b = _find_lonely(a, b, ours, theirs, tolerance), _find_lonely(b, a, theirs, ours, tolerance)
    values, shapes = a.graph.run.values, {b.graph.run.values[number].shape for number in lonely_b}
    for kinds, word, most in ((("input",), "inputs", 0.0), (("parameter", "buffer"), "weights", MOST_WEIGHTS)):
        count = sum(values[number].kind in kinds for number in ours)
        other = [number for number in lonely_a if values[number].kind in kinds and values[number].shape in shapes]
        if len(other) > most * count:
            value = values[other[0]]
            what = f"{value.name or 'one'} ({'x'.join(map(str, value.shape)) or 'a number'}, {value.dtype})"
            raise JoulediffError(
                f"{a.graph.run.label} and {b.graph.run.label} were given different {word}: first {what}",
                fix="record both with the same inputs, seed and weights",
            )


def _given(side: Side) -> list[int]:
    """Return what a step was given and reads, in that order; nothing that is empty."""
    values, seen = side.graph.run.values, dict[int, None]()
    for reads in side.graph.reads:
        seen |= {value: None for value in reads if values[value].producer is None}
    return [value for value in seen if values[value].kind != "produced" and side.features.counts[value]]


def _find_lonely(a: Side, b: Side, ours: Sequence[int], theirs: Sequence[int], tolerance: float) -> list[int]:
    """Return what only the first of two runs was given."""
    mine, strong = (
        np.array([value for value in values if side.features.strong[value]], dtype=np.int64)
        for side, values in ((a, ours), (b, theirs))
    )
    lonely = set(mine.tolist())
    if len(mine) and len(strong):
        distances = find_nearest(b.features.rows[strong], a.features.rows[mine])[0][:, 0]
        reach = tolerance + np.maximum(slack_of(a, mine), slack_of(b, strong).max())
        lonely = set(mine[distances > reach].tolist())
    weak = [b.graph.run.signature_of(value) for value in theirs if not b.features.strong[value]][:_MOST]
    for value in [value for value in ours if not a.features.strong[value]][:_MOST]:
        signature = a.graph.run.signature_of(value)
        if signature is not None and not any(
            each is None or is_same_weak_value(signature, each, tolerance=SINGLE_NUMBER) for each in weak
        ):
            lonely.add(value)
    return [value for value in ours if value in lonely]
