"""Tensors without a framework: what they look like, which are the same, and values that say nothing."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invented import sign
from joulediff.matching import match_regions
from joulediff.matching.disjoint_sets import DisjointSets
from joulediff.matching.features import find_features
from joulediff.matching.graph import to_graph
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run
from joulediff.model.signature import Signature
from rewrites.synthetic import make_runs
from run_builders import RunBuilder


def run_of(*arrays: np.ndarray) -> Run:
    """Return a run that was given arrays and reads each."""
    builder = RunBuilder("cpu")
    for number, array in enumerate(arrays):
        given_one = builder.value(array.shape, kind="input", signature=number)
        builder.op(
            "aten::relu", inputs=[given_one], outputs=[builder.value(array.shape, producer=number, writers=(number,))]
        )
    return builder.build(signatures=tuple(sign(array) for array in arrays))


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
def test_layout_padding_and_repetition_change_nothing(change: Callable[[np.ndarray], np.ndarray]) -> None:
    rows, strong, _ = rows_of(X, change(X))
    assert strong.all()
    assert np.abs(rows[0] - rows[1]).max() < 1e-8


def test_float_types_change_little_and_other_tensors_much() -> None:
    half = X.astype(np.float16)
    rows, _, _ = rows_of(
        X, half, X + 0.02 * np.roll(X, 1), 1.02 * X, X + 0.02, np.random.default_rng(1).standard_normal(X.shape)
    )
    near = np.abs(rows[0] - rows[1]).max()
    assert near < 1e-3
    assert all(np.abs(rows[0] - other).max() > 5 * near for other in rows[2:])


def test_repetition_shows_in_the_size() -> None:
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
def test_what_says_too_little_is_weak(array: np.ndarray) -> None:
    assert not rows_of(array)[1].any()


@settings(deadline=None)
@given(scale=st.floats(1e-30, 1e6), shift=st.floats(-3.0, 3.0), seed=st.integers(0, 1000))
def test_features_are_finite_and_say_the_scale(scale: float, shift: float, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(200) + shift) * scale
    rows, strong, _ = rows_of(x, 2 * x)
    assert strong.all() and np.isfinite(rows).all()
    assert rows[1][0] - rows[0][0] == pytest.approx(math.log(2))
    assert np.abs(rows[1][1:] - rows[0][1:]).max() < 1e-9


def test_runs_of_many_layers() -> None:
    a, b = make_runs(300)
    regions = match_regions(a, b)
    sizes = sorted((each.kind, len(each.a), len(each.b)) for each in regions)
    assert sizes == [("equal", 1, 1)] * 600 + [("equal", 5, 5)] * 300 + [("movement", 1, 1)] * 300
    assert all(set(each.a) == set(each.b) for each in regions)


def flat(signature: Signature, value: float) -> Signature:
    """Return the signature of a tensor that holds one number."""
    return replace(
        sign(np.full(signature.count, value)) if math.isfinite(value) else sign(np.full(8, value)),
        count=signature.count,
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 0.37, 1e-320, 1e300, math.nan, math.inf])
def test_values_that_say_nothing_pair_nothing(value: float) -> None:
    runs = [replace(run, signatures=tuple(flat(each, value) for each in run.signatures)) for run in make_runs(100)]
    assert not [each for each in match_regions(*runs) if each.kind == "equal"]


@pytest.mark.parametrize("tolerance", [1e-5, 1e-2])
def test_tensors_that_all_look_alike_pair_nothing_wrong(tolerance: float) -> None:
    """They lie within the tolerance of each other; those that are equal are nearest."""

    base = make_runs(1)[0].signatures[1]

    def alike(_: int, each: Signature) -> Signature:
        chance = random.Random(round(each.sum_x2, 2))
        names = ("low", "high", "sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
        return replace(base, **{name: getattr(base, name) * (1 + 1e-3 * chance.gauss(0, 1)) for name in names})

    a, b = (with_signatures(run, alike) for run in make_runs(200))
    found = [each for each in match_regions(a, b, tolerance=tolerance) if each.kind == "equal"]
    assert len(found) > 500
    assert all(set(each.a) == set(each.b) for each in found)


def with_signatures(run: Run, change: Callable[[int, Signature], Signature]) -> Run:
    return replace(run, signatures=tuple(change(number, each) for number, each in enumerate(run.signatures)))


def read_by_all(run: Run, value: int) -> Run:
    return replace(run, ops=tuple(replace(op, inputs=(*op.inputs, value)) if op.id else op for op in run.ops))


@pytest.mark.parametrize(
    "change",
    [
        lambda run: with_signatures(run, lambda _, each: run.signatures[1]),
        lambda run: with_signatures(run, lambda at, each: replace(each, nans=1) if at else each),
        lambda run: read_by_all(run, 0),
        lambda run: read_by_all(run, run.ops[0].outputs[0]),
        lambda run: replace(run, values=tuple(replace(v, signature=None) if v.id % 3 else v for v in run.values)),
    ],
)
def test_odd_runs_cost_no_more_than_their_size(change: Callable[[Run], Run]) -> None:
    """Four times the operators may take about four times the steps of Python, never sixteen."""
    steps = []
    for layers in (100, 400):
        a, b = (change(run) for run in make_runs(layers))
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            match_regions(a, b)
        finally:
            sys.setprofile(None)
        steps.append(calls)
    assert steps[1] < 8 * steps[0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_disjoint_sets(joins: list[tuple[int, int]]) -> None:
    disjoint, sets = DisjointSets(31), [{number} for number in range(31)]
    for one, other in joins:
        assert disjoint.merge(one, other) == (sets[one] is not sets[other])
        if sets[one] is not sets[other]:
            sets[one] |= sets[other]
            for number in sets[other]:
                sets[number] = sets[one]
    of, count = disjoint.number_sets()
    assert all(disjoint.find(number) == min(sets[number]) for number in range(31))
    assert count == len({id(each) for each in sets}) == len(set(of.tolist()))
    assert all(of[one] == of[other] for each in sets for one in each for other in each)


ODD = (0.0, -0.0, 1.0, -1.0, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan, 0.1, 1e16)


@pytest.mark.parametrize("seed", range(40))
def test_signatures_from_anywhere_are_survived(seed: int) -> None:
    """A recording comes from anywhere: sums that cannot be, counts that do not fit, no extremes."""
    chance = random.Random(seed)

    def odd(_: int, each: Signature) -> Signature:
        if chance.random() < 0.7:
            return each
        sums = {f"sum_{name}": chance.choice(ODD) for name in ("x", "abs", "x2", "x3", "x4")}
        ends = {name: chance.choice((None, *ODD)) for name in ("low", "high")}
        counts = {name: chance.choice([0, 1, 7, 2**53]) for name in ("count", "zeros", "nans")}
        return replace(each, **sums, **ends, **counts, integral=chance.random() < 0.5)  # type: ignore[arg-type]

    a, b = make_runs(6)
    a = with_signatures(a, odd)
    try:
        regions = match_regions(a, b)
    except JoulediffError as error:
        assert "were given different" in str(error)
        return
    for ops in ([op for each in regions for op in each.a], [op for each in regions for op in each.b]):
        assert len(ops) == len(set(ops))
