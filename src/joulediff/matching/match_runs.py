"""Match the work of two runs by the values of their tensors.

Names of operators, modules and tensors are not used.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from joulediff.matching.anchor_support import add_weak_anchors, drop_unsupported_anchors
from joulediff.matching.anchors import AnalysedRun, find_anchors, find_nearest, slack_of
from joulediff.matching.congruence import add_congruent_anchors
from joulediff.matching.equivalence import find_compositions, find_equivalence
from joulediff.matching.features import find_features, is_same_weak_value
from joulediff.matching.graph import to_graph
from joulediff.matching.joint_graph import skip_compositions, to_joint_graph
from joulediff.matching.merged_tensors import split_merged_tensors
from joulediff.matching.regions import find_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.options import DiffOptions
from joulediff.model.run import Run

# Relative difference that the features of equal tensors may have, beyond the rounding of their float types.
TOLERANCE = DiffOptions.tolerance


def match_regions(a: Run, b: Run, *, tolerance: float = TOLERANCE) -> list[Region]:
    """Return the regions of two runs, in the order of their first operators.

    Every operator is in one region, or in none if it has no counterpart. Raises JoulediffError for a run without
    operators or signatures, and for runs that were given different inputs or weights.
    """
    if not 0 <= tolerance < 1:
        raise JoulediffError(f"cannot match with a tolerance of {tolerance:g}", fix="give a number from 0 to 1")
    for run in (a, b):
        _check_recorded(run)
    with _without_collector():
        sides = _analyse(a), _analyse(b)
        check_inputs(*sides, tolerance)
        anchors = find_anchors(*sides, tolerance)
        joint = to_joint_graph(*sides, anchors)
        drop_unsupported_anchors(joint, anchors)
        skip_compositions(joint)
        split_merged_tensors(joint, tolerance)
        add_congruent_anchors(joint, tolerance)
        add_weak_anchors(joint, tolerance)
        return find_regions(joint)


def _analyse(run: Run) -> AnalysedRun:
    graph = to_graph(run)
    features = find_features(graph)
    equivalence = find_equivalence(graph, features)
    return AnalysedRun(graph, features, equivalence, find_compositions(graph, features, equivalence))


def _check_recorded(run: Run) -> None:
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
    """Switch the garbage collector off: matching makes very many lists, and none of them is part of a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


# Some weights may differ, as after training of a part; if more than this share differ, it is another model.
MOST_WEIGHTS = 0.5
# A single number may be stored in float16 in one program; bfloat16 rounds by 2**-8.
SINGLE_NUMBER = 2**-7
# Most weak inputs of a run that are compared with those of the other.
_MOST = 200


def check_inputs(a: AnalysedRun, b: AnalysedRun, tolerance: float) -> None:
    """Raise JoulediffError if an input of the runs differs, or most weights; the message names the first one."""
    ours, theirs = _list_inputs(a), _list_inputs(b)
    unmatched_a = _find_unmatched(a, b, ours, theirs, tolerance)
    unmatched_b = _find_unmatched(b, a, theirs, ours, tolerance)
    values, shapes = a.graph.run.values, {b.graph.run.values[number].shape for number in unmatched_b}
    for kinds, word, most in ((("input",), "inputs", 0.0), (("parameter", "buffer"), "weights", MOST_WEIGHTS)):
        count = sum(values[number].kind in kinds for number in ours)
        other = [number for number in unmatched_a if values[number].kind in kinds and values[number].shape in shapes]
        if len(other) > most * count:
            value = values[other[0]]
            what = f"{value.name or 'one'} ({'x'.join(map(str, value.shape)) or 'a number'}, {value.dtype})"
            raise JoulediffError(
                f"{a.graph.run.label} and {b.graph.run.label} were given different {word}: first {what}",
                fix="record both with the same inputs, seed and weights",
            )


def _list_inputs(side: AnalysedRun) -> list[int]:
    """Return the tensors given to the step that it reads, in the order of reading; without empty ones."""
    values, seen = side.graph.run.values, dict[int, None]()
    for reads in side.graph.reads:
        seen |= {value: None for value in reads if values[value].producer is None}
    return [value for value in seen if values[value].kind != "produced" and side.features.counts[value]]


def _find_unmatched(
    a: AnalysedRun, b: AnalysedRun, ours: Sequence[int], theirs: Sequence[int], tolerance: float
) -> list[int]:
    """Return the inputs of the first run that equal none of the second."""
    mine, strong = (
        np.array([value for value in values if side.features.strong[value]], dtype=np.int64)
        for side, values in ((a, ours), (b, theirs))
    )
    unmatched = set(mine.tolist())
    if len(mine) and len(strong):
        distances = find_nearest(b.features.rows[strong], a.features.rows[mine])[0][:, 0]
        reach = tolerance + np.maximum(slack_of(a, mine), slack_of(b, strong).max())
        unmatched = set(mine[distances > reach].tolist())
    weak = [b.graph.run.signature_of(value) for value in theirs if not b.features.strong[value]][:_MOST]
    for value in [value for value in ours if not a.features.strong[value]][:_MOST]:
        signature = a.graph.run.signature_of(value)
        if signature is not None and not any(
            each is None or is_same_weak_value(signature, each, tolerance=SINGLE_NUMBER) for each in weak
        ):
            unmatched.add(value)
    return [value for value in ours if value in unmatched]
