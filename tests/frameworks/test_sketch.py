"""Signed sums in NumPy are those of the definition, however a tensor is cut into blocks."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invented import sketch
from joulediff.frameworks.sketch import SignedSums, count_signs, signed_sums, to_sketch
from joulediff.model.signature import SIGN_PERIOD, SKETCH

COUNTS = [1, 15, 16, 17, 511, 512, 513, SIGN_PERIOD - 1, SIGN_PERIOD, SIGN_PERIOD + 1, 20 * SIGN_PERIOD + 777]


@pytest.mark.parametrize("count", COUNTS)
def test_it_equals_the_definition(count: int) -> None:
    x = np.random.default_rng(count).standard_normal(count)
    sum_x2 = float((x * x).sum())
    assert to_sketch(signed_sums(x), sum_x2) == sketch(x, sum_x2)


@given(st.lists(st.integers(0, 3 * SIGN_PERIOD), max_size=6), st.integers(1, 3 * SIGN_PERIOD))
@settings(max_examples=50, deadline=None)
def test_blocks_of_any_size_and_order_add_up(cuts: list[int], count: int) -> None:
    x = np.random.default_rng(count).standard_normal(count)
    edges = sorted({0, count, *(cut for cut in cuts if cut < count)})
    sums = SignedSums()
    for begin, end in reversed(list(pairwise(edges))):
        sums.add(x[begin:end], begin)
    assert sums.total() == pytest.approx(signed_sums(x), rel=1e-12, abs=1e-9)


def test_one_tensor_after_the_other() -> None:
    x = np.arange(1000.0)
    sums = SignedSums()
    sums.add(x, 0)
    first = sums.total()
    kept = first.copy()
    sums.clear()
    sums.add(x[:10], 0)
    assert (first == kept).all(), "a total stays as it is"
    assert sums.total() == pytest.approx(signed_sums(x[:10]))


@pytest.mark.parametrize("count", [0, 5, SIGN_PERIOD, 3 * SIGN_PERIOD + 100])
def test_the_signs_of_a_tensor_of_ones(count: int) -> None:
    assert count_signs(count) == pytest.approx(signed_sums(np.ones(count)))


def test_a_norm_of_zero_or_infinity_has_no_sketch() -> None:
    ones = np.ones(SKETCH)
    assert to_sketch(ones, 0.0) is None
    assert to_sketch(ones, math.inf) is None
    assert to_sketch(ones, math.nan) is None
    assert to_sketch(ones, 1e-300) is None, "the sums cannot be of this norm"
    assert to_sketch(ones, 1.0) == (65536,) * SKETCH
