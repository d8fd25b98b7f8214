"""The comparison of two signatures: what counts as the same tensor, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invented import sign
from joulediff.model.signature import compare, difference

X = np.random.default_rng(0).standard_normal((64, 48))


def test_a_tensor_equals_itself_in_any_layout() -> None:
    assert difference(sign(X), sign(X.T)) == pytest.approx(0.0, abs=1e-12)
    assert compare(sign(X), sign(X[::-1].reshape(-1)), tolerance=1e-12, extremes=True)


@given(st.floats(1e-6, 0.2), st.floats(1e-100, 1e100))
def test_the_difference_is_a_share_of_the_norm_at_any_scale(share: float, scale: float) -> None:
    found = difference(sign(scale * X), sign((1 + share) * scale * X))
    assert found == pytest.approx(share, rel=0.3)


def test_the_order_of_two_signatures_does_not_matter() -> None:
    other = sign(X + 0.01)
    assert difference(sign(X), other, extremes=True) == difference(other, sign(X), extremes=True)


def test_tensors_of_different_sizes_cannot_be_compared() -> None:
    assert difference(sign(X), sign(X[1:])) is None
    assert not compare(sign(X), sign(X[1:]), tolerance=1.0)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_tensors_with_different_counts_of_nan_or_infinity_differ(odd: float) -> None:
    other = X.copy()
    other[0, 0] = odd
    assert difference(sign(X), sign(other)) == 1.0
    assert difference(sign(other), sign(other)) == 0.0


def test_zeros_equal_zeros_alone() -> None:
    assert difference(sign(np.zeros(8)), sign(np.zeros(8))) == 0.0
    assert difference(sign(np.zeros(8)), sign(np.full(8, 1e-30))) == 1.0


def test_one_element_changes_the_extremes_and_not_the_norm() -> None:
    other = X.copy()
    other[0, 0] = 20.0
    assert not compare(sign(X), sign(other), tolerance=0.2, extremes=True)
    assert compare(sign(X), sign(other), tolerance=0.2)


def test_sums_that_overflow_are_left_out() -> None:
    with np.errstate(all="ignore"):
        large = sign(1e200 * X)
    assert math.isinf(large.sum_x2)
    assert difference(large, large) == 0.0
    assert not compare(large, replace(large, sum_abs=2 * large.sum_abs), tolerance=0.1)


def test_sums_that_no_tensor_has_are_survived() -> None:
    for changes in ({"sum_x2": 0.0}, {"sum_x2": -1.0}, {"sum_abs": math.nan}, {"sum_x": math.inf}):
        odd = replace(sign(X), **changes)
        assert difference(odd, sign(X), extremes=True) is not None
        assert difference(odd, odd, extremes=True) is not None
