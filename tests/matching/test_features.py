"""Features of tensors: what changes them, what does not, and which tensors are weak."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invented import invented, sign
from joulediff.matching.features import find_features, is_same_weak_value
from joulediff.matching.graph import to_graph
from joulediff.matching.match_runs import SINGLE_NUMBER
from joulediff.model.run import Run


def run_of(*arrays: np.ndarray) -> Run:
    """Return a run with these inputs and an operator that reads each."""
    built = invented(device="cpu")
    for number, array in enumerate(arrays):
        built.input(f"x{number}", array, dtype="float32").op("toy::relu", [f"x{number}"], np.maximum(array, 0))
    return built.build()


def rows_of(*arrays: np.ndarray) -> Any:
    run = run_of(*arrays)
    found = find_features(to_graph(run))
    places = [op.inputs[0] for op in run.ops]
    return found.rows[places], found.strong[places], found.sizes[places]


X = np.random.default_rng(0).standard_normal((64, 48))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.T,
        lambda x: x.reshape(-1, 3)[::-1],
        lambda x: np.pad(x, ((0, 7), (3, 0))),
        lambda x: np.repeat(x, 4, axis=0),
        lambda x: np.tile(x, (2, 3)),
        lambda x: np.concatenate([x, 1e-12 * x]),
    ],
)
def test_layout_padding_and_repetition_do_not_change_features(change: Callable[[np.ndarray], np.ndarray]) -> None:
    rows, strong, _ = rows_of(X, change(X))
    assert strong.all()
    assert np.abs(rows[0] - rows[1]).max() < 1e-8


def test_a_float_type_changes_features_less_than_another_tensor() -> None:
    half = X.astype(np.float16)
    rows, _, _ = rows_of(
        X, half, X + 0.02 * np.roll(X, 1), 1.02 * X, X + 0.02, np.random.default_rng(1).standard_normal(X.shape)
    )
    near = np.abs(rows[0] - rows[1]).max()
    assert near < 1e-3
    assert all(np.abs(rows[0] - other).max() > 5 * near for other in rows[2:])


def test_repetition_multiplies_the_size() -> None:
    _, _, sizes = rows_of(X, np.repeat(X, 4, axis=0), np.pad(X, 5))
    assert sizes[1] / sizes[0] == pytest.approx(4.0)
    assert sizes[2] / sizes[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 8)),
        np.full((8, 8), 0.37),
        np.sign(X),
        np.where(X > 0, 0.0, -1e4),
        np.where(X > 0, X, -1e9),
        np.where(X > 2, np.nan, X),
        np.where(X > 2, np.inf, X),
        np.full((8, 8), np.nan),
        X * 1e-310,
        X * 1e200,
        np.arange(64.0),
        X[0, :5],
        np.zeros((0, 4)),
    ],
)
def test_tensors_that_features_cannot_tell_apart_are_weak(array: np.ndarray) -> None:
    assert not rows_of(array)[1].any()


@settings(deadline=None)
@given(scale=st.floats(1e-30, 1e6), shift=st.floats(-3.0, 3.0), seed=st.integers(0, 1000))
def test_features_are_finite_and_contain_the_scale(scale: float, shift: float, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(200) + shift) * scale
    rows, strong, _ = rows_of(x, 2 * x)
    assert strong.all() and np.isfinite(rows).all()
    assert rows[1][0] - rows[0][0] == pytest.approx(math.log(2))
    assert np.abs(rows[1][1:] - rows[0][1:]).max() < 1e-9


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ([3, 5, 7], [3, 5, 7], True),
        ([3, 5, 7], [3, 5, 8], False),
        (np.arange(50_000), np.arange(50_000)[::-1], True),
        (np.arange(50_000), [*range(49_999), 50_000], False),
        ([0.1], np.float16([0.1]), True),
        ([0.1], [0.102], False),
        ([0.5, -0.5, 2.0], [0.5, -0.5, 2.0001], True),
        ([0.5, -0.5, 2.0], [0.5, -0.5, 2.1], False),
        (np.full(9, 0.37), np.full(9, 0.3701), True),
        (np.full(9, 0.37), np.full(10, 0.37), False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([0.0, -np.inf], [0.0, -np.inf], True),
        ([0.0, -np.inf], [0.0, np.inf], False),
    ],
)
def test_weak_values_are_equal_up_to_rounding_and_whole_numbers_exactly(one: Any, other: Any, is_same: bool) -> None:
    a, b = sign(np.asarray(one)), sign(np.asarray(other))
    assert is_same_weak_value(a, b, tolerance=SINGLE_NUMBER) is is_same
    assert is_same_weak_value(b, a, tolerance=SINGLE_NUMBER) is is_same
