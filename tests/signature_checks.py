"""Signatures by their definition, each sum exactly rounded, and the comparison of two of them in tests."""

from __future__ import annotations

import math

from joulediff.model.signature import SIGN_PERIOD, SKETCH, SKETCH_STEP, Signature, mix

COUNTS = ("count", "nans", "positive_infs", "negative_infs", "zeros", "integral", "low", "high")
SUMS = ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")


def by_hand(values: list[float]) -> Signature:
    """Return the signature of numbers, each sum exactly rounded."""
    finite = [v for v in values if math.isfinite(v)]
    powers = [math.fsum(v**n for v in finite) for n in (1, 2, 3, 4)]
    return Signature(
        count=len(values),
        nans=sum(math.isnan(v) for v in values),
        positive_infs=values.count(math.inf),
        negative_infs=values.count(-math.inf),
        zeros=values.count(0.0),
        integral=all(v.is_integer() for v in finite),
        low=min(finite) + 0.0 if finite else None,
        high=max(finite) + 0.0 if finite else None,
        sum_x=powers[0],
        sum_abs=math.fsum(abs(v) for v in finite),
        sum_x2=powers[1],
        sum_x3=powers[2],
        sum_x4=powers[3],
        sketch=sketch_by_hand(values, powers[1]),
    )


def sketch_by_hand(values: list[float], sum_x2: float) -> tuple[int, ...] | None:
    """Return the sketch, each sum exactly rounded."""
    if not 0.0 < sum_x2 < math.inf:
        return None
    groups: list[list[float]] = [[] for _ in range(SKETCH)]
    for at, value in enumerate(values):
        flip = mix(SIGN_PERIOD + at // SIGN_PERIOD) >> at % SKETCH
        if math.isfinite(value):
            groups[at % SKETCH].append(-value if (mix(at % SIGN_PERIOD) ^ flip) & 1 else value)
    return tuple(round(math.fsum(group) / math.sqrt(sum_x2) / SKETCH_STEP) for group in groups)


def assert_same(a: Signature, b: Signature, *, share: float = 1e-12, ordered: bool = True) -> None:
    """Hold two signatures against each other; sums may differ by rounding, as a share of the sum of what was added.

    Sketches differ unless elements are `ordered` alike.
    """
    assert [getattr(a, name) for name in COUNTS] == [getattr(b, name) for name in COUNTS]
    scale = {"sum_x": a.sum_abs, "sum_x3": math.sqrt(a.sum_x2 * a.sum_x4)}
    for name in SUMS:
        one, other = getattr(a, name), getattr(b, name)
        assert abs(one - other) <= share * max(scale.get(name, one), 1e-300), (name, one, other)
    if ordered:
        assert_same_sketch(a, b)


def assert_same_sketch(a: Signature, b: Signature, *, steps: int = 1) -> None:
    """Hold the sketches of two signatures against each other; rounding may change a number by 1."""
    assert (a.sketch is None) == (b.sketch is None)
    gaps = [abs(x - y) for x, y in zip(a.sketch or (), b.sketch or (), strict=True)]
    assert max(gaps, default=0) <= steps, gaps


def distance(a: Signature, b: Signature) -> float:
    """Return the distance of two sketches."""
    assert a.sketch is not None
    assert b.sketch is not None
    return math.dist(a.sketch, b.sketch) * SKETCH_STEP
