"""Match the work of two runs by the values of their tensors.

Names decide nothing that values decide. Where values leave it open, the same operator on equal tensors counts as equal
(`congruence`), and calls whose outputs agree are compared operator by operator (`enclosing`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from joulediff.matching.anchor_support import add_weak_anchors, drop_unsupported_anchors
from joulediff.matching.anchors import AnalysedRun, find_anchors, find_nearest, slack_of
from joulediff.matching.congruence import add_congruent_anchors
from joulediff.matching.drift import Distances, find_divergences, find_drift
from joulediff.matching.enclosing.enclose import do_steps_agree, do_tensors_agree
from joulediff.matching.equivalence import find_compositions, find_equivalence
from joulediff.matching.features import find_features, is_same_weak_value
from joulediff.matching.graph import to_graph
from joulediff.matching.joint_graph import skip_compositions, to_joint_graph
from joulediff.matching.merged_tensors import split_merged_products, split_merged_weights
from joulediff.matching.regions import find_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Match, Region
from joulediff.model.options import DiffOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run

# Relative difference that the features of equal tensors may have, beyond the rounding of their float types.
TOLERANCE = DiffOptions.tolerance


def match_runs(a: Run, b: Run, *, tolerance: float = TOLERANCE, listener: ProgressListener | None = None) -> Match:
    """Return the regions of two runs, in the order of their first operators, and where the runs differ.

    Every operator is in one region, or in none if the outputs of the runs differ and it has no counterpart. Raises
    JoulediffError for a run without operators or signatures, and for runs that were given different inputs or weights
    and whose outputs differ as well.
    """
    if not 0 <= tolerance < 1:
        raise JoulediffError(f"cannot match with a tolerance of {tolerance:g}", fix="give a number from 0 to 1")
    for run in (a, b):
        _check_recorded(run)
    listener = listener or ProgressListener()
    with _without_collector():
        listener.stage("matching: reading tensors", 0.0)
        sides = _analyse(a), _analyse(b)
        other_inputs = check_inputs(*sides, tolerance)
        listener.stage("matching: comparing tensors", 0.3)
        anchors = find_anchors(*sides, tolerance)
        joint = to_joint_graph(*sides, anchors)
        listener.stage("matching: checking pairs", 0.5)
        split_merged_weights(joint)
        drop_unsupported_anchors(joint, anchors)
        skip_compositions(joint)
        split_merged_products(joint, tolerance)
        add_congruent_anchors(joint, tolerance)
        add_weak_anchors(joint, tolerance)
        agree = do_steps_agree(joint)
        if other_inputs is not None and not (agree and (other_inputs.are_weights or do_tensors_agree(joint))):
            raise other_inputs.error
        listener.stage("matching: forming regions", 0.7)
        distances = Distances(joint, anchors)
        regions, drifts = find_drift(joint, distances, find_regions(joint))
        divergences = find_divergences(joint, distances, regions, drifts, agree=agree)
        notes = () if other_inputs is None else (other_inputs.note,)
        return Match(tuple(regions), tuple(divergences), notes, agree)


def match_regions(a: Run, b: Run, *, tolerance: float = TOLERANCE) -> list[Region]:
    """Return the regions of two runs alone."""
    return list(match_runs(a, b, tolerance=tolerance).regions)


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


@dataclass(frozen=True, slots=True)
class OtherInputs:
    """Tensors that the runs were given differ: an error, unless the outputs are equal."""

    are_weights: bool
    error: JoulediffError
    note: str


def check_inputs(a: AnalysedRun, b: AnalysedRun, tolerance: float) -> OtherInputs | None:
    """Return the inputs, or else most of the weights, that differ between the runs; the message names the first one.

    One run may hold its weights folded (a batch norm in a convolution), or keep what the other computes in each step (a
    mask, an order of rows), so a difference alone is no error.
    """
    ours, theirs = _list_inputs(a), _list_inputs(b)
    unmatched_a = _find_unmatched(a, b, ours, theirs, tolerance)
    unmatched_b = _find_unmatched(b, a, theirs, ours, tolerance)
    values, shapes = a.graph.run.values, {b.graph.run.values[number].shape for number in unmatched_b}
    labels = f"{a.graph.run.label} and {b.graph.run.label}"
    for kinds, word, most in ((("input",), "inputs", 0.0), (("parameter", "buffer"), "weights", MOST_WEIGHTS)):
        count = sum(values[number].kind in kinds for number in ours)
        other = [number for number in unmatched_a if values[number].kind in kinds and values[number].shape in shapes]
        if len(other) <= most * count:
            continue
        value = values[other[0]]
        what = f"{value.name or 'one'} ({'x'.join(map(str, value.shape)) or 'a number'}, {value.dtype})"
        error = JoulediffError(
            f"{labels} were given different {word}: first {what}",
            fix="record both with the same inputs, seed and weights",
        )
        note = f"{len(other)} of {count} {word} differ, first {what}; the match relies on the equal outputs"
        return OtherInputs(word == "weights", error, note)
    return None


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
