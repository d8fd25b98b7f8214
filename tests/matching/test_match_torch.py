"""Matching of small PyTorch programs with a known answer that need the real operators of a framework.

`test_match.py` has those that need no framework.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from joulediff.matching.match_runs import match_regions
from joulediff.matching.rows import group_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.finding import Region
from joulediff.model.run import Run
from matching_builders import Shown, Step, match_runs, names, show_regions
from rewrites.nodes import gelu_decomposed
from rewrites.programs import record_step


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-1] ** -0.5


X, W, V = draw(16, 32), draw(32, 32, seed=1), draw(32, 32, seed=2)


def matched(first: Step, second: Step, **options: Any) -> tuple[Run, Run, list[Region]]:
    a, b = record_step(first), record_step(second)
    return a, b, match_runs(a, b, **options)


def shown(first: Step, second: Step, **options: Any) -> list[Shown]:
    return show_regions(record_step(first), record_step(second), **options)


def test_float_types_do_not_matter() -> None:
    def in_type(dtype: torch.dtype) -> Step:
        x, w, v = (each.to(dtype) for each in (X, W, V))
        return lambda: functional.silu(x @ w) @ v

    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        found = shown(in_type(torch.float32), in_type(dtype))
        assert [each[:2] for each in found] == [("equal", ["mm"]), ("equal", ["silu"]), ("equal", ["mm"])]
        assert all(ours == theirs for _, ours, theirs in found)


def test_a_mask_shared_by_all_layers_merges_none_of_them() -> None:
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


def test_a_loss_is_matched_by_its_origin() -> None:
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
        match_regions(a, b)
    with pytest.raises(JoulediffError, match=r"first x \(16x32, float32\)"):
        x = X
        first = record_step(lambda: x @ W)
        x = X + 1.0
        match_regions(first, record_step(lambda: x @ W))


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
        match_regions(a, b)
    few = match_regions(a, record_step(model(1, 2, 7)))
    assert [each.a for each in few if each.kind == "equal"] == [each.b for each in few if each.kind == "equal"]
    assert len([each for each in few if each.kind == "equal"]) == 2


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
