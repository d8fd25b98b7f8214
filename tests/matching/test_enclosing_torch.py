"""Hugging Face models whose tensors differ in both runs while their results agree: a cache, padding."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from joulediff.matching.match_runs import match_regions
from joulediff.matching.rows import group_regions
from joulediff.model.finding import Region
from joulediff.model.run import Run
from rewrites.programs import record_step

transformers = pytest.importorskip("transformers")

LAYERS, NEW = 2, 6
# Operators that only move data are paired by their names and modules, or left on one side.
VIEWS = ("view", "_unsafe_view", "transpose", "slice", "unsqueeze", "expand", "t", "_to_copy", "clone", "cat", "select")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def generate(*, use_cache: bool, attention: str = "sdpa") -> Callable[[], Any]:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation=attention,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 128, (2, 12))
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    return torch.no_grad()(lambda: model.generate(ids, use_cache=use_cache, **options))


def bert(length: int, *, pooled: bool) -> Callable[[], Any]:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    model = transformers.BertModel(config).eval()
    ids = torch.nn.functional.pad(torch.randint(1, 128, (3, 6)), (0, length - 6))
    mask = (ids > 0).long()

    def step() -> Any:
        found = model(ids, attention_mask=mask)
        return found.pooler_output if pooled else found.last_hidden_state[:, :6]

    return torch.no_grad()(step)


def check(a: Run, b: Run, regions: list[Region]) -> None:
    """Check that every operator is in a region, and that operators of different calls are not in one."""
    for run, ops in ((a, [op for each in regions for op in each.a]), (b, [op for each in regions for op in each.b])):
        assert sorted(ops) == list(range(len(run.ops)))
    for each in regions:
        if each.basis == "call" and each.a and each.b:
            sides = [computing(run, ops) for run, ops in ((a, each.a), (b, each.b))]
            assert sides[0] == sides[1]
    assert max(min(len(each.a), len(each.b)) for each in regions) <= 15


def computing(run: Run, ops: tuple[int, ...]) -> list[tuple[str, str | None]]:
    found = [(run.ops[op].name.removeprefix("aten::"), run.ops[op].module) for op in ops]
    return [each for each in found if each[0] not in VIEWS]


def iteration_of(run: Run, op: int) -> int:
    return sum(each.name == "aten::embedding" for each in run.ops[: op + 1])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_tokens_generated_with_and_without_a_cache(attention: str) -> None:
    a, b = (record_step(generate(use_cache=use_cache, attention=attention)) for use_cache in (True, False))
    regions = match_regions(a, b)
    check(a, b, regions)
    for each in regions:
        if each.basis == "call" and each.a and each.b:
            assert iteration_of(a, each.a[0]) == iteration_of(b, each.b[0])
    rows = {
        (group.name, group.where): len(group.regions)
        for group in group_regions(a, b, regions)
        if regions[group.regions[0]].basis == "call"
    }
    assert rows["mm", "model.layers.*.mlp.gate_proj"] == LAYERS * (NEW - 1)
    assert rows["silu", "model.layers.*.mlp.act_fn"] == LAYERS * (NEW - 1)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_batch_with_more_and_less_padding(pooled: bool) -> None:
    a, b = (record_step(bert(length, pooled=pooled)) for length in (24, 8))
    regions = match_regions(a, b)
    check(a, b, regions)
    pairs = [each for each in regions if computing(a, each.a)]
    assert all(len(each.a) == len(each.b) == 1 for each in pairs if each.basis == "call")
    assert sum(each.basis == "call" for each in pairs) > 15 * LAYERS


def test_models_that_differ_in_a_weight_are_not_compared_by_their_operators() -> None:
    """All hidden states differ: the operators have the same names and modules, and no counterpart."""

    def model(seed: int) -> Callable[[], Any]:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh()) for _ in range(8)))
        torch.manual_seed(seed)
        layers[0] = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh())
        x = torch.arange(512.0).sin().view(16, 32)
        return torch.no_grad()(lambda: layers(x))

    a, b = record_step(model(1)), record_step(model(2))
    assert all(each.kind == "movement" and each.basis == "equal" for each in match_regions(a, b))
