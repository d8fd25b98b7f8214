"""Matching of long synthetic runs, and of runs with unusual or damaged signatures."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from invented import sign
from joulediff.matching.match_runs import match_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run
from joulediff.model.signature import Signature
from rewrites.synthetic import make_runs


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
def test_constant_and_overflowing_tensors_are_matched_by_the_same_operators_only(value: float) -> None:
    a, b = (replace(run, signatures=tuple(flat(each, value) for each in run.signatures)) for run in make_runs(100))
    for each in match_regions(a, b):
        if each.kind == "equal":
            assert [a.ops[op].name for op in each.a] == [b.ops[op].name for op in each.b]


@pytest.mark.parametrize("tolerance", [1e-5, 1e-2])
def test_similar_tensors_are_matched_with_their_equals_only(tolerance: float) -> None:
    """All tensors are within the tolerance of each other; equal ones are the nearest."""

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
def test_the_time_of_unusual_runs_is_linear(change: Callable[[Run], Run]) -> None:
    """Four times the operators may take about four times the Python calls, never sixteen."""
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


ODD = (0.0, -0.0, 1.0, -1.0, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan, 0.1, 1e16)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_signatures_raise_no_unexpected_error(seed: int) -> None:
    """A recording may be damaged: impossible sums, counts that do not fit, missing extremes."""
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
