"""Operators whose tensors differ in both runs, in calls whose outputs agree."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from invented import Tensor, call, cat, draw, exp, gelu, record, softmax, tanh
from joulediff.matching.enclosing import calls, enclose, op_pairs
from joulediff.matching.match_runs import match_regions
from joulediff.matching.rows import group_regions
from joulediff.model.finding import Region
from joulediff.model.run import Run
from matching_builders import Step, V, W, given, matched, names

LAYERS, WIDTH, WORDS, NEW = 2, 32, 50, 4
TABLE = given("table", WORDS, WIDTH, seed=70)
WEIGHTS = [
    {name: given(f"{layer}.{name}", WIDTH, WIDTH, seed=71 + 4 * layer + at) for at, name in enumerate("qkvo")}
    for layer in range(LAYERS)
]
FILES = {each.__file__ for each in (calls, enclose, op_pairs)}
PROMPT = Tensor(np.array([3, 11, 25, 40, 7, 31, 18]), name="prompt")


def covered(a: Run, b: Run, regions: list[Region]) -> tuple[int, int]:
    """Return the number of operators of each run that are in no region."""
    return len(a.ops) - sum(len(each.a) for each in regions), len(b.ops) - sum(len(each.b) for each in regions)


def rows(x: Tensor, first: int, end: int) -> Tensor:
    return call("slice", x.array[first:end], x, first, end, is_view=True)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention of the last rows."""
    scores = q @ k.t() * WIDTH**-0.5
    later = np.arange(k.shape[0])[None, :] > np.arange(k.shape[0] - q.shape[0], k.shape[0])[:, None]
    masked = call("masked_fill", np.where(later, np.float32(-1e4), scores.array), scores)
    return softmax(masked) @ v


def choose(x: Tensor) -> Tensor:
    """Return the next word after the last row."""
    scores = rows(x, x.shape[0] - 1, x.shape[0]) @ TABLE.t()
    return call("argmax", scores.array.argmax(-1), scores)


def without_cache(new_words: int = NEW) -> Tensor:
    words = PROMPT
    for _ in range(new_words):
        x = TABLE[words]
        for weights in WEIGHTS:
            x = x + attend(x @ weights["q"], x @ weights["k"], x @ weights["v"]) @ weights["o"]
        words = cat([words, choose(x)])
    return words


def with_cache(new_words: int = NEW) -> Tensor:
    words = new = PROMPT
    caches: list[tuple[Tensor, Tensor] | None] = [None] * LAYERS
    for _ in range(new_words):
        x = TABLE[new]
        for layer, weights in enumerate(WEIGHTS):
            q, k, v = x @ weights["q"], x @ weights["k"], x @ weights["v"]
            cache = caches[layer]
            if cache is not None:
                k, v = cat([cache[0], k]), cat([cache[1], v])
            caches[layer] = (k, v)
            x = x + attend(q, k, v) @ weights["o"]
        new = choose(x)
        words = cat([words, new])
    return words


def test_a_loop_with_and_without_a_cache() -> None:
    a, b, regions = matched(with_cache, without_cache)
    assert covered(a, b, regions) == (0, 0)
    assert max(len(each.a) + len(each.b) for each in regions) < 20
    left = [each for each in regions if each.basis == "call" and each.kind == "equal"]
    for each in left:
        if each.a and each.b:
            assert names(a, each.a) == names(b, each.b)
    products = [each for each in left if names(a, each.a) == ["mm"]]
    assert len(products) >= 4 * (NEW - 1)
    assert all(iteration_of(a, each.a[0]) == iteration_of(b, each.b[0]) for each in products)
    weights = [(weight_of(a, each.a[0]), weight_of(b, each.b[0])) for each in products]
    assert all(one == other for one, other in weights)
    assert {one for one, _ in weights} >= {"0.q", "0.o"}


def iteration_of(run: Run, op: int) -> int:
    return sum(each.name == "aten::index" for each in run.ops[: op + 1])


def weight_of(run: Run, op: int) -> str | None:
    return run.values[run.ops[op].inputs[1]].name


def test_iterations_of_a_loop_are_one_row() -> None:
    a, b, regions = matched(with_cache, without_cache)
    found = {
        group.name: len(group.regions) for group in group_regions(a, b, regions) if is_call(regions, group.regions)
    }
    assert found["_softmax"] == found["masked_fill"] == found["index"] == NEW - 1
    assert len(found) < 10


def is_call(regions: list[Region], numbers: tuple[int, ...]) -> bool:
    return all(regions[number].basis == "call" for number in numbers)


def padded(length: int, times: int = 1) -> Step:
    """Return a step on rows of which the first 16 count; the others hold numbers that no other run has."""
    real = draw(16, WIDTH, seed=0)
    x = Tensor(np.concatenate([real, 3 + draw(length, WIDTH, seed=length)]))

    def step() -> Tensor:
        y = x
        for weights in WEIGHTS * times:
            y = y + gelu(tanh(exp(y @ weights["q"]) @ weights["k"]) @ weights["v"]) @ weights["o"]
        return rows(y, 0, 16)

    return step


def test_a_padded_batch_is_matched_operator_by_operator() -> None:
    a, b, regions = matched(padded(48), padded(8))
    assert covered(a, b, regions) == (0, 0)
    assert all(each.a == each.b and len(each.a) == 1 for each in regions)
    assert {each.basis for each in regions} == {"call"}
    [last] = [each for each in regions if each.outputs]
    assert names(a, last.a) == ["slice"]


@pytest.mark.parametrize(
    "steps",
    [
        lambda times: (padded(48, 4 * times), padded(8, 4 * times)),
        lambda times: (lambda: with_cache(6 * times), lambda: without_cache(6 * times)),
    ],
)
def test_the_time_is_linear(steps: Callable[[int], tuple[Step, Step]]) -> None:
    """Four times the operators may take about four times the calls, never sixteen."""
    counts = []
    for times in (1, 4):
        a, b = map(record, steps(times))
        seen = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal seen
            seen += frame.f_code.co_filename in FILES

        sys.setprofile(count)
        try:
            regions = match_regions(a, b)
        finally:
            sys.setprofile(None)
        assert covered(a, b, regions) == (0, 0)
        counts.append(seen)
    assert 0 < counts[1] < 6 * counts[0]


def two_results(second: Callable[[Tensor], Tensor], length: int) -> Step:
    """Return a step with one result that does not depend on `length`, and one by `second`."""
    inner = padded(length)

    def first() -> Tensor:
        return inner()

    def step() -> Any:
        return [first(), second(W)]

    return step


def test_steps_that_agree_in_some_results_agree_in_the_calls_of_these() -> None:
    a, b, regions = matched(two_results(tanh, 48), two_results(exp, 8))
    assert covered(a, b, regions) == (1, 1)
    assert {names(a, each.a)[0] for each in regions if each.basis == "call"} >= {"mm", "tanh", "gelu", "slice"}


def test_operators_of_steps_with_other_results_have_no_counterpart() -> None:
    """Same shapes, same operators, other weights: order and names are no evidence."""

    def model(*seeds: int) -> Step:
        weights = [
            Tensor(draw(WIDTH, WIDTH, seed=200 + seed), name=f"w{at}", kind="parameter")
            for at, seed in enumerate(seeds)
        ]

        def step() -> Tensor:
            x = W
            for weight in weights:
                x = tanh(x @ weight) + 0.5 * exp(x)
            return x

        return step

    a, b, regions = matched(model(1, 2, 3, 4), model(1, 2, 3, 9))
    equal = [each for each in regions if each.basis == "call"]
    assert not equal
    assert covered(a, b, regions)[0] == covered(a, b, regions)[1] >= 3


def test_the_smallest_calls_that_agree_hold_what_is_left() -> None:
    """The function that differs is called twice; each call is compared with its counterpart alone."""

    def hidden(x: Tensor, width: int) -> Tensor:
        wide = Tensor(np.concatenate([x.array, 2 + draw(width, WIDTH, seed=width)]))
        return rows(tanh(wide @ WEIGHTS[0]["q"]) @ WEIGHTS[0]["k"], 0, x.shape[0])

    def step(width: int) -> Step:
        def run() -> Tensor:
            x = W
            for weights in WEIGHTS:
                x = softmax(x @ weights["v"])
                x = call("add", (x.array + hidden(x, width).array), x)
            return x

        return run

    a, b, regions = matched(step(8), step(24))
    assert covered(a, b, regions) == (0, 0)
    assert all(each.a == each.b for each in regions)


def are_results_equal(numbers: Any, other: Any) -> tuple[bool, bool]:
    """Return whether two steps count as equal that compute whole numbers in unlike ways, from unlike tensors.

    The second answer is that for recordings of an older version, without sketches.
    """

    def step(result: Any, read: Tensor) -> Step:
        noise = draw(16, WIDTH, seed=int(read is W))

        def run() -> Any:
            return [tanh(W), tanh(V), call("argmax", np.asarray(result), exp(call("rand", noise, read)))]

        return run

    runs = [record(step(numbers, W)), record(step(other, V))]
    old = [replace(run, signatures=tuple(replace(s, sketch=None) for s in run.signatures)) for run in runs]
    new_left, old_left = (covered(a, b, match_regions(a, b)) for a, b in (runs, old))
    return new_left == (0, 0), old_left == (0, 0)


@pytest.mark.parametrize(
    ("numbers", "other", "answer"),
    [
        ([5, 3, 8, 8, 1, 9], [5, 3, 8, 8, 1, 9], (True, True)),
        ([5, 3, 8, 8, 1, 9], [3, 5, 8, 8, 1, 9], (False, True)),
        ([5, 3, 8, 8, 1, 9], [5, 3, 8, 8, 1, 7], (False, False)),
        ([5, 3], [5, 3], (False, False)),
        ([0.5, 0.25, 8.0, 8.0, 1.0, 9.0], [0.5, 0.25, 8.0, 8.0, 1.0, 9.5], (False, False)),
    ],
)
def test_the_same_whole_numbers_are_equal_results_if_they_are_many(
    numbers: Any, other: Any, answer: tuple[bool, bool]
) -> None:
    assert are_results_equal(numbers, other) == answer


def test_results_that_hold_one_number_are_no_evidence() -> None:
    def step(seed: int) -> Step:
        def run() -> Tensor:
            return call(
                "zeros_like", np.zeros((16, WIDTH), np.float32), tanh(call("rand", draw(16, WIDTH, seed=seed), W))
            )

        return run

    a, b, regions = matched(step(1), step(2))
    assert covered(a, b, [each for each in regions if each.basis == "call"]) == (len(a.ops), len(b.ops))
