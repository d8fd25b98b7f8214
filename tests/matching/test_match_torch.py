"""What is matched with what, on small programs of PyTorch whose answer is plain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from joulediff.matching import group_regions, match
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Pass
from matching_builders import Step, V, W, X, draw, matched, names, shown
from rewrites.nodes import gelu_decomposed
from rewrites.programs import record_step


def test_a_program_and_itself() -> None:
    def step() -> torch.Tensor:
        return functional.gelu(X @ W).softmax(-1) @ V

    a, _b, regions = matched(step, step)
    assert all(each.a == each.b for each in regions)
    assert {op for each in regions for op in each.a} == set(range(len(a.ops)))
    assert all(each.kind == "equal" for each in regions)
    assert [len(each.inputs) for each in regions] == [2, 1, 1, 2]


def test_a_fused_operator_and_what_it_does() -> None:
    found = shown(lambda: functional.gelu(X @ W, approximate="tanh") @ V, lambda: gelu_decomposed(X @ W) @ V)
    assert [(kind, a) for kind, a, _ in found] == [("equal", ["mm"]), ("equal", ["gelu"]), ("equal", ["mm"])]
    assert len(found[1][2]) == 8


def test_a_fused_weight_equals_its_parts() -> None:
    parts = [draw(32, 8, seed=seed) for seed in range(5, 8)]
    fused = torch.cat(parts, dim=1)

    def apart() -> Any:
        return [torch.tanh(X @ part) for part in parts]

    def together() -> Any:
        return [torch.tanh(part) for part in (X @ fused).chunk(3, dim=1)]

    found = shown(apart, together)
    assert ("equal", ["mm", "mm", "mm"], ["mm"]) in found
    assert found.count(("equal", ["tanh"], ["tanh"])) == 3
    assert ("movement", [], ["split"]) in found


def test_what_only_one_run_moves_is_data_movement() -> None:
    def lean() -> torch.Tensor:
        return torch.tanh(X @ W) @ V

    def wasteful() -> torch.Tensor:
        y = (X @ W).t().contiguous().t().clone()
        return (torch.tanh(y.double().float()) * 1.0) @ V

    found = shown(lean, wasteful)
    assert [each for each in found if each[0] == "equal"] == [
        ("equal", ["mm"], ["mm"]),
        ("equal", ["tanh"], ["tanh"]),
        ("equal", ["mm"], ["mm"]),
    ]
    extra = [names for kind, ours, names in found if kind == "movement" and not ours]
    assert extra == [["t"], ["clone"], ["t"], ["clone"], ["_to_copy"], ["_to_copy"], ["mul"]]


def test_a_view_that_is_the_input_again_does_not_make_it() -> None:
    found = shown(lambda: torch.tanh(X @ W), lambda: torch.tanh(X.reshape(-1).view(16, 32) @ W))
    views = [("movement", [], ["view"])] * 2
    assert sorted(found) == [("equal", ["mm"], ["mm"]), ("equal", ["tanh"], ["tanh"]), *views]


def test_float_types_do_not_matter() -> None:
    def in_type(dtype: torch.dtype) -> Step:
        x, w, v = (each.to(dtype) for each in (X, W, V))
        return lambda: functional.silu(x @ w) @ v

    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        found = shown(in_type(torch.float32), in_type(dtype))
        assert [each[:2] for each in found] == [("equal", ["mm"]), ("equal", ["silu"]), ("equal", ["mm"])]
        assert all(ours == theirs for _, ours, theirs in found)


def test_what_is_computed_twice_is_told() -> None:
    def once() -> torch.Tensor:
        y = X @ W
        return torch.tanh(y) + y.exp()

    def twice() -> torch.Tensor:
        return torch.tanh(X @ W) + (X @ W).exp()

    found = shown(once, twice)
    assert ("repeated", [], ["mm"]) in found
    assert ("equal", ["mm"], ["mm"]) in found
    assert ("equal", ["add"], ["add"]) in found


def test_what_nothing_reads_is_told() -> None:
    def wasteful() -> torch.Tensor:
        (X @ V).exp()
        return torch.tanh(X @ W)

    assert ("unused", [], ["mm", "exp"]) in shown(lambda: torch.tanh(X @ W), wasteful)


def test_a_mask_for_all_layers_joins_none_of_them() -> None:
    weights = [draw(32, 32, seed=seed) for seed in range(20, 26)]

    def with_mask() -> torch.Tensor:
        mask = torch.ones(16, 16).tril().log()
        x = X
        for weight in weights:
            y = x @ weight
            x = (torch.softmax(y @ y.t() + mask, -1) @ y) + x
        return x

    def fused() -> torch.Tensor:
        x = X
        for weight in weights:
            y = (x @ weight)[None, None]
            x = functional.scaled_dot_product_attention(y, y, y, is_causal=True, scale=1.0)[0, 0] + x
        return x

    found = shown(with_mask, fused)
    attention = [each for each in found if "_softmax" in each[1]]
    assert len(attention) == len(weights)
    assert all(len(ours) <= 6 and len(theirs) == 1 for _, ours, theirs in attention)
    assert ("constant", ["ones", "tril", "log"], []) in found


def test_parts_that_do_not_connect_and_several_outputs() -> None:
    y = draw(8, 8, seed=40)

    def one() -> Any:
        return {"left": torch.tanh(X @ W), "right": [torch.exp(y @ y), X.sum(-1)]}

    def other() -> Any:
        right = [torch.exp(torch.mm(y, y)), X.sum(-1)]
        return {"right": right, "left": torch.tanh(X @ W)}

    a, _, regions = matched(one, other)
    assert sorted(op for each in regions for op in each.a) == list(range(len(a.ops)))
    pairs = {(each.a, each.b) for each in regions}
    assert pairs == {((0,), (3,)), ((1,), (4,)), ((2,), (0,)), ((3,), (1,)), ((4,), (2,))}
    assert all(each.kind == "equal" for each in regions)


def test_tied_weights_and_repeated_tokens() -> None:
    table, ids = draw(50, 32, seed=41), torch.tensor([3, 3, 7, 7, 3])

    def step() -> torch.Tensor:
        x = table[ids]
        return torch.softmax(torch.tanh(x @ W) @ table.t(), -1)

    a, b, regions = matched(step, step)
    assert all(each.a == each.b for each in regions)
    assert sorted(op for each in regions for op in each.b) == list(range(len(b.ops)))
    assert len(a.ops) == len(b.ops)


def test_branches_in_another_order() -> None:
    def one() -> torch.Tensor:
        left = torch.tanh(X @ W)
        right = torch.sigmoid(X @ V)
        return left * right

    def other() -> torch.Tensor:
        right = torch.sigmoid(X @ V)
        left = torch.tanh(X @ W)
        return left * right

    a, _b, regions = matched(one, other)
    pairs = {(names(a, each.a)[0], each.a[0], each.b[0]) for each in regions}
    assert pairs == {("mm", 0, 2), ("tanh", 1, 3), ("mm", 2, 0), ("sigmoid", 3, 1), ("mul", 4, 4)}


def test_layers_that_only_one_run_has_are_left_over() -> None:
    weights = [draw(32, 32, seed=seed) for seed in range(30, 36)]

    def layers(count: int) -> Step:
        def step() -> torch.Tensor:
            x = X
            for weight in weights[:count]:
                x = x + torch.tanh(x @ weight)
            return x

        return step

    _a, b, regions = matched(layers(4), layers(6))
    assert {op for each in regions for op in each.a} == set(range(12))
    assert {op for each in regions for op in each.b} == set(range(12))
    assert len(b.ops) == 18


def test_writes_in_place_and_into_parts() -> None:
    def new() -> torch.Tensor:
        y = X @ W
        return torch.cat([y * 2, torch.tanh(y)], dim=1) @ torch.cat([V, V])

    def in_place() -> torch.Tensor:
        y = X @ W
        place = torch.empty(16, 64)
        place[:, :32] = y * 2
        place[:, 32:] = torch.tanh(y)
        return place @ torch.cat([V, V])

    found = shown(new, in_place)
    assert ("equal", ["mul"], ["mul"]) in found
    assert ("equal", ["tanh"], ["tanh"]) in found
    assert ("equal", ["mm"], ["mm"]) in found


def test_repeated_heads_and_heads_that_are_shared() -> None:
    q, k, v = draw(1, 4, 16, 8), draw(1, 2, 16, 8, seed=1), draw(1, 2, 16, 8, seed=2)

    def repeated() -> torch.Tensor:
        keys, values = (each.repeat_interleave(2, dim=1) for each in (k * 2, v * 3))
        return functional.scaled_dot_product_attention(q, keys, values) + 1

    def shared() -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k * 2, v * 3, enable_gqa=True) + 1

    a, b, regions = matched(repeated, shared)
    equal = [(names(a, each.a), names(b, each.b)) for each in regions if each.kind == "equal"]
    assert equal.count((["mul"], ["mul"])) == 2
    attention = next(ours for ours, _ in equal if any("attention" in name for name in ours))
    assert not any("repeat" in name or "index" in name or "clone" in name for name in attention)


def test_a_loss_is_paired_by_what_it_is_made_of() -> None:
    targets = torch.arange(16)

    def fused() -> torch.Tensor:
        return functional.cross_entropy(X @ W, targets)

    def apart() -> torch.Tensor:
        logits = X @ W
        return (torch.logsumexp(logits, -1) - logits.gather(-1, targets[:, None])[:, 0]).mean()

    found = shown(fused, apart)
    assert found[0] == ("equal", ["mm"], ["mm"])
    assert len(found) == 2 and found[1][0] == "equal"


def test_training_matches_forward_backward_and_optimizer() -> None:
    def make(activation: Callable[[torch.Tensor], torch.Tensor]) -> Step:
        weight, other = W.clone().requires_grad_(), V.clone().requires_grad_()
        optimizer = torch.optim.SGD([weight, other], lr=0.1)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (activation(X @ weight) @ other).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    a, b, regions = matched(make(lambda x: functional.gelu(x, approximate="tanh")), make(gelu_decomposed))
    assert {op for each in regions for op in each.a} == set(range(len(a.ops)))
    assert {op for each in regions for op in each.b} == set(range(len(b.ops)))
    optimizer = [each for each in regions if any(a.ops[op].phase == "optimizer" for op in each.a)]
    assert optimizer and all(each.kind in ("equal", "movement") for each in optimizer)


def test_other_inputs_are_refused() -> None:
    ids, others = torch.randint(0, 32, (16,)), torch.arange(16)
    a = replace(record_step(lambda: W[ids] @ V), label="one")
    b = replace(record_step(lambda: W[others] @ V), label="other")
    with pytest.raises(JoulediffError, match=r"one and other were given different inputs: first .*16, int64"):
        match(a, b)
    with pytest.raises(JoulediffError, match=r"first x \(16x32, float32\)"):
        x = X
        first = record_step(lambda: x @ W)
        x = X + 1.0
        match(first, record_step(lambda: x @ W))


def test_other_weights_are_refused_and_a_few_are_not() -> None:
    def model(*seeds: int) -> Step:
        layers = []
        for seed in seeds:
            torch.manual_seed(seed)
            layers.append(torch.nn.Linear(32, 32))
        whole = torch.nn.Sequential(*layers)

        def step() -> torch.Tensor:
            with torch.no_grad():
                return whole(X)

        return step

    a, b = record_step(model(1, 2, 3)), record_step(model(4, 5, 6))
    with pytest.raises(JoulediffError, match=r"given different weights: first 0\.weight"):
        match(a, b)
    few = match(a, record_step(model(1, 2, 7)))
    assert [each.a for each in few if each.kind == "equal"] == [each.b for each in few if each.kind == "equal"]
    assert len([each for each in few if each.kind == "equal"]) == 2


def test_programs_that_have_nothing_in_common() -> None:
    y = draw(7, 5, seed=9)
    _a, _b, regions = matched(lambda: torch.tanh(X @ W), lambda: torch.exp(y @ y.t()).sum())
    assert not [each for each in regions if each.kind == "equal"]
    assert not {op for each in regions for op in each.a} & {0, 1}


def test_runs_without_operators_or_signatures_are_refused() -> None:
    run = record_step(lambda: X @ W)
    empty = replace(run, ops=(), values=(), passes=(Pass("captured", "skipped", 0.0, "it was stopped"),))
    with pytest.raises(JoulediffError, match=r"has no operators to match: its captured pass was skipped \(it was stop"):
        match(run, empty)
    bare = replace(run, values=tuple(replace(value, signature=None) for value in run.values))
    with pytest.raises(JoulediffError, match="has no signatures of its tensors"):
        match(bare, run)
    for tolerance in (-1e-3, 1.0, float("nan")):
        with pytest.raises(JoulediffError, match="tolerance"):
            match(run, run, tolerance=tolerance)


def test_layers_are_one_row() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    model = Model()

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(X)

    a, b, regions = matched(step, step)
    groups = group_regions(a, b, regions)
    assert sorted(number for group in groups for number in group.regions) == list(range(len(regions)))
    rows = {(group.name, group.where): len(group.regions) for group in groups}
    assert rows["addmm", "layers.*"] == 4
    assert rows["tanh", ""] == 4
