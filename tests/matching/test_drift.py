"""Where two runs begin to differ: jumps of the distance, related tensors, and the first unequal tensor."""

from __future__ import annotations

import numpy as np

from invented import Tensor, record, tanh
from joulediff.matching.match_runs import match_runs
from joulediff.model.finding import Match
from matching_builders import Step, given

X = given("x", 64, 64, seed=0)
WEIGHTS = [given(f"w{layer}", 64, 64, seed=layer + 1) for layer in range(8)]


def layers(changed: int | None = None, factor: float = 1.0) -> Step:
    """Return eight residual layers; the activation of one of them is scaled."""

    def step() -> Tensor:
        x = X
        for layer, weight in enumerate(WEIGHTS):
            y = tanh(x @ weight)
            x = x + (y * factor if layer == changed else y * 1.0)
        return x

    return step


def match(first: Step, second: Step) -> Match:
    return match_runs(record(first), record(second))


def test_equal_runs_have_no_divergence() -> None:
    found = match(layers(), layers())
    assert found.divergences == ()
    assert {each.basis for each in found.regions} == {"equal"}


def test_a_change_of_one_layer_is_a_divergence_of_that_layer() -> None:
    found = match(layers(), layers(changed=5, factor=1.05))
    first = found.divergences[0]
    ops_per_layer = 4
    assert {op // ops_per_layer for op in (*first.a, *first.b)} == {5}
    assert first.difference > first.expected


def test_a_small_change_is_not_swallowed_by_the_tolerance() -> None:
    found = match(layers(), layers(changed=3, factor=1 + 2e-4))
    assert found.divergences
    assert found.divergences[0].difference < 1e-3


def test_unequal_outputs_name_the_first_unequal_operator() -> None:
    found = match(layers(), layers(changed=7, factor=-1.0))
    assert found.divergences
    assert np.isfinite(found.divergences[0].difference)
