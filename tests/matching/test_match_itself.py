"""A recording matches itself and another recording of its program, also where values do not tell tensors apart."""

from __future__ import annotations

import pytest

from joulediff.matching.match_runs import match_regions
from joulediff.model.finding import Region
from rewrites.repetitive import PROGRAMS, make_repetitive, record_again, share_with_itself

OPS = 500


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_operator_is_matched_with_itself(program: str) -> None:
    run = make_repetitive(program, OPS)
    for other in (run, record_again(run)):
        regions = match_regions(run, other)
        assert share_with_itself(run, regions) == 1.0
        assert max(len(each.a) for each in regions) == 1


def test_the_programs_are_what_they_are_called() -> None:
    runs = {program: make_repetitive(program, OPS) for program in PROGRAMS}
    assert all(len(run.ops) == OPS for run in runs.values())
    last = {program: run.signature_of(run.ops[-1].outputs[0]) for program, run in runs.items()}
    different = {program: len(set(run.signatures)) for program, run in runs.items()}
    assert last["converging"].constant
    assert not last["settling"].constant
    assert different["settling"] < 200
    assert different["repeating"] == 4
    assert all(each.constant for each in runs["constant"].signatures)
    assert last["nan"].nans == last["nan"].count
    assert different["layers"] == len(runs["layers"].signatures)
    assert all(run.values[run.ops[-1].outputs[0]].name == "output" for run in runs.values())


def test_another_recording_of_layers_differs_by_rounding() -> None:
    run = make_repetitive("layers", 60)
    other = record_again(run)
    assert run.ops == other.ops
    pairs = list(zip(run.signatures, other.signatures, strict=True))
    assert all(x != y and abs(x.sum_x2 - y.sum_x2) < 1e-6 * x.sum_x2 for x, y in pairs)
    assert any(x.sketch != y.sketch for x, y in pairs)


def test_the_share_counts_operators_in_regions_of_their_own() -> None:
    run = make_repetitive("layers", 4)

    def region(*ops: tuple[int, ...]) -> Region:
        return Region(0, "equal", *ops, (), ())

    assert share_with_itself(run, [region((0,), (0,)), region((1, 2), (2, 1)), region((3,), ())]) == 0.25
    assert share_with_itself(run, [region((0, 1, 2, 3), (0, 1, 2, 3))]) == 1.0
