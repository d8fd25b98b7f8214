"""Matching of small programs whose answer is plain, recorded from numpy arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from invented import Tensor, call, draw, exp, gelu, gelu_decomposed, invented, record, sigmoid, silu, softmax, tanh
from joulediff.matching.match_runs import match_regions, match_runs
from joulediff.matching.rows import group_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Pass, Run
from matching_builders import Step, V, W, X, given, matched, names, shown


def test_a_program_and_itself() -> None:
    def step() -> Tensor:
        return softmax(gelu(X @ W)) @ V

    a, _b, regions = matched(step, step)
    assert all(each.a == each.b for each in regions)
    assert {op for each in regions for op in each.a} == set(range(len(a.ops)))
    assert all(each.kind == "equal" for each in regions)
    assert [len(each.inputs) for each in regions] == [2, 1, 1, 2]


def test_a_fused_operator_and_its_decomposition() -> None:
    found = shown(lambda: gelu(X @ W) @ V, lambda: gelu_decomposed(X @ W) @ V)
    assert [(kind, a) for kind, a, _ in found] == [("equal", ["mm"]), ("equal", ["gelu"]), ("equal", ["mm"])]
    assert len(found[1][2]) == 8


def test_a_fused_weight_equals_its_parts() -> None:
    parts = [given(f"w{seed}", 32, 8, seed=seed) for seed in range(5, 8)]
    fused = Tensor(np.concatenate([part.array for part in parts], axis=1))

    def apart() -> Any:
        return [tanh(X @ part) for part in parts]

    def together() -> Any:
        return [tanh(part) for part in (X @ fused).split(8)]

    found = shown(apart, together)
    assert ("equal", ["mm", "mm", "mm"], ["mm"]) in found
    assert found.count(("equal", ["tanh"], ["tanh"])) == 3
    assert ("movement", [], ["split"]) in found


def test_work_that_only_one_run_does_to_move_data_is_movement() -> None:
    def lean() -> Tensor:
        return tanh(X @ W) @ V

    def wasteful() -> Tensor:
        y = (X @ W).t().contiguous().t().clone()
        return (tanh(y.to("float64").to("float32")) * 1.0) @ V

    found = shown(lean, wasteful)
    assert [each for each in found if each[0] == "equal"] == [
        ("equal", ["mm"], ["mm"]),
        ("equal", ["tanh"], ["tanh"]),
        ("equal", ["mm"], ["mm"]),
    ]
    extra = [names for kind, ours, names in found if kind == "movement" and not ours]
    assert extra == [["t"], ["clone"], ["t"], ["clone"], ["_to_copy"], ["_to_copy"], ["mul"]]


def test_a_view_of_the_input_does_not_make_it() -> None:
    found = shown(lambda: tanh(X @ W), lambda: tanh(X.view(-1).view(16, 32) @ W))
    views = [("movement", [], ["view"])] * 2
    assert sorted(found) == [("equal", ["mm"], ["mm"]), ("equal", ["tanh"], ["tanh"]), *views]


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_float_types_do_not_matter(dtype: str) -> None:
    def in_type(dtype: str) -> Step:
        x, w, v = (Tensor(each.array.astype(dtype)) for each in (X, W, V))
        return lambda: silu(x @ w) @ v

    found = shown(in_type("float32"), in_type(dtype))
    assert [each[:2] for each in found] == [("equal", ["mm"]), ("equal", ["silu"]), ("equal", ["mm"])]
    assert all(ours == theirs for _, ours, theirs in found)


def test_repeated_work_is_reported() -> None:
    def once() -> Tensor:
        y = X @ W
        return tanh(y) + exp(y)

    def twice() -> Tensor:
        return tanh(X @ W) + exp(X @ W)

    found = shown(once, twice)
    assert ("repeated", [], ["mm"]) in found
    assert ("equal", ["mm"], ["mm"]) in found
    assert ("equal", ["add"], ["add"]) in found


def test_unused_work_is_reported() -> None:
    def wasteful() -> Tensor:
        exp(X @ V)
        return tanh(X @ W)

    assert ("unused", [], ["mm", "exp"]) in shown(lambda: tanh(X @ W), wasteful)


def test_parts_that_do_not_connect_and_several_outputs() -> None:
    y = given("y", 8, 8, seed=40)

    def one() -> Any:
        return {"left": tanh(X @ W), "right": [exp(y @ y), X.sum(-1)]}

    def other() -> Any:
        right = [exp(y @ y), X.sum(-1)]
        return {"right": right, "left": tanh(X @ W)}

    a, _, regions = matched(one, other)
    assert sorted(op for each in regions for op in each.a) == list(range(len(a.ops)))
    pairs = {(each.a, each.b) for each in regions}
    assert pairs == {((0,), (3,)), ((1,), (4,)), ((2,), (0,)), ((3,), (1,)), ((4,), (2,))}
    assert all(each.kind == "equal" for each in regions)


def test_tied_weights_and_repeated_tokens() -> None:
    table, ids = given("table", 50, 32, seed=41), Tensor(np.array([3, 3, 7, 7, 3]))

    def step() -> Tensor:
        return softmax(tanh(table[ids] @ W) @ table.t())

    a, b, regions = matched(step, step)
    assert all(each.a == each.b for each in regions)
    assert sorted(op for each in regions for op in each.b) == list(range(len(b.ops)))
    assert len(a.ops) == len(b.ops)


def test_branches_in_another_order() -> None:
    def one() -> Tensor:
        left = tanh(X @ W)
        right = sigmoid(X @ V)
        return left * right

    def other() -> Tensor:
        right = sigmoid(X @ V)
        left = tanh(X @ W)
        return left * right

    a, _b, regions = matched(one, other)
    pairs = {(names(a, each.a)[0], each.a[0], each.b[0]) for each in regions}
    assert pairs == {("mm", 0, 2), ("tanh", 1, 3), ("mm", 2, 0), ("sigmoid", 3, 1), ("mul", 4, 4)}


def test_layers_that_only_one_run_has_are_left_over() -> None:
    weights = [given(f"w{seed}", 32, 32, seed=seed) for seed in range(30, 36)]

    def layers(count: int) -> Step:
        def step() -> Tensor:
            x = X
            for weight in weights[:count]:
                x = x + tanh(x @ weight)
            return x

        return step

    _a, b, regions = matched(layers(4), layers(6))
    assert {op for each in regions for op in each.a} == set(range(12))
    assert {op for each in regions for op in each.b} == set(range(12))
    assert len(b.ops) == 18


def test_a_write_in_place_equals_a_new_tensor() -> None:
    def in_place() -> Tensor:
        y = X @ W
        y.mul_(2.0)
        return tanh(y) @ V

    found = shown(lambda: tanh((X @ W) * 2.0) @ V, in_place)
    assert ("equal", ["mul"], ["mul_"]) in found
    assert [kind for kind, _, _ in found] == ["equal"] * 4


def test_a_padded_product_equals_the_plain_one() -> None:
    wide = Tensor(np.pad(W.array, ((0, 0), (0, 8))))
    tall = Tensor(np.pad(V.array, ((0, 8), (0, 0))))
    assert shown(lambda: tanh(X @ W) @ V, lambda: tanh(X @ wide) @ tall) == [
        ("equal", ["mm"], ["mm"]),
        ("equal", ["tanh"], ["tanh"]),
        ("equal", ["mm"], ["mm"]),
    ]


def test_other_inputs_are_refused() -> None:
    ids, others = Tensor(np.arange(16) % 7, name="ids"), Tensor(np.arange(16), name="others")
    a = record(lambda: W[ids] @ V, label="one")
    b = record(lambda: W[others] @ V, label="other")
    with pytest.raises(JoulediffError, match=r"one and other were given different inputs: first .*16, int64"):
        match_regions(a, b)
    moved = Tensor(X.array + 1.0, name="x")
    with pytest.raises(JoulediffError, match=r"first x \(16x32, float32\)"):
        match_regions(record(lambda: X @ W), record(lambda: moved @ W))


def test_other_inputs_are_trusted_where_more_than_a_number_is_equal() -> None:
    """Each program keeps something of its own, such as an order of rows, and hands out the same result."""

    def recorded(label: str, seed: int, *, sums: bool) -> Run:
        kept = Tensor(np.random.default_rng(seed).normal(size=(16, 32)).astype(np.float32), name="kept")

        def step() -> Tensor:
            found = ((X - kept) + kept) @ W
            return call("sum", found.array.sum(), found) if sums else found

        return record(step, label=label)

    match = match_runs(recorded("one", 1, sums=False), recorded("other", 2, sums=False))
    assert match.outputs_agree
    assert match.notes == ("1 of 3 inputs differ, first kept (16x32, float32); the match relies on the equal outputs",)
    assert [each.kind for each in match.regions].count("equal") == 2
    with pytest.raises(JoulediffError, match="one and other were given different inputs: first kept"):
        match_runs(recorded("one", 1, sums=True), recorded("other", 2, sums=True))


def test_other_weights_are_refused_and_a_few_are_not() -> None:
    def model(*seeds: int) -> Run:
        weights = [
            Tensor(draw(32, 32, seed=100 + seed), name=f"{at}.weight", kind="parameter")
            for at, seed in enumerate(seeds)
        ]

        def step() -> Tensor:
            x = X
            for weight in weights:
                x = x @ weight
            return x

        return record(step)

    with pytest.raises(JoulediffError, match=r"given different weights: first 0\.weight"):
        match_regions(model(1, 2, 3), model(4, 5, 6))
    few = [each for each in match_regions(model(1, 2, 3), model(1, 2, 7)) if each.kind == "equal"]
    assert [each.a for each in few] == [each.b for each in few]
    assert len(few) == 2


def test_programs_that_have_nothing_in_common() -> None:
    y = given("y", 7, 5, seed=9)
    _a, _b, regions = matched(lambda: tanh(X @ W), lambda: exp(y @ y.t()).sum())
    assert not [each for each in regions if each.kind == "equal"]
    assert not {op for each in regions for op in each.a} & {0, 1}


def test_runs_without_operators_or_signatures_are_refused() -> None:
    run = record(lambda: X @ W)
    empty = replace(run, ops=(), values=(), passes=(Pass("captured", "skipped", 0.0, "it was stopped"),))
    with pytest.raises(JoulediffError, match=r"has no operators to match: its captured pass was skipped \(it was stop"):
        match_regions(run, empty)
    bare = replace(run, values=tuple(replace(value, signature=None) for value in run.values))
    with pytest.raises(JoulediffError, match="has no signatures of its tensors"):
        match_regions(bare, run)
    for tolerance in (-1e-3, 1.0, float("nan")):
        with pytest.raises(JoulediffError, match="tolerance"):
            match_regions(run, run, tolerance=tolerance)


def test_layers_are_one_row() -> None:
    built, x = invented("layers").input("x", X.array), X.array
    for layer in range(4):
        weight = draw(32, 32, seed=60 + layer)
        built.input(f"layers.{layer}.weight", weight, kind="parameter")
        product, at = x @ weight, f"layers.{layer}"
        built.op("aten::mm", ["x" if not layer else "tanh", f"{at}.weight"], product, module=at, module_type="Linear")
        x = np.tanh(product)
        built.op("aten::tanh", ["mm"], x, module="")
    run = built.returned("tanh").build()
    regions = match_regions(run, run)
    groups = group_regions(run, run, regions)
    assert sorted(number for group in groups for number in group.regions) == list(range(len(regions)))
    rows = {(group.name, group.where): len(group.regions) for group in groups}
    assert rows == {("mm", "layers.*"): 4, ("tanh", ""): 4}


def test_masks_of_the_lowest_float32_and_float64_are_equal() -> None:
    """The squares of the lowest float64 overflow; the masks are matched by the anchors computed from them."""

    def masked(dtype: str) -> Step:
        x, w = (Tensor(each.array.astype(dtype)) for each in (X, W))
        lowest = float(np.finfo(dtype).min)

        def step() -> Tensor:
            mask = call("full", np.full((16, 32), lowest, dtype=dtype))
            keep = call("triu", np.triu(mask.array, 1), mask)
            return softmax(x @ w + keep)

        return step

    with np.errstate(over="ignore"):
        found = shown(masked("float32"), masked("float64"))
    assert ("equal", ["triu"], ["triu"]) in found
    assert ("equal", ["_softmax"], ["_softmax"]) in found
