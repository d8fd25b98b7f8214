"""Hugging Face against vLLM: a prefill of a Llama with 16 layers in bfloat16, recorded on an H200.

`tests/golden/systems/README.md` says how the recordings were made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pytest

import paths
from joulediff.archive.reader import load
from joulediff.energy.ledger import Costs
from joulediff.matching.match_runs import match_regions
from joulediff.matching.rows import RegionGroup, group_regions, is_view
from joulediff.model.finding import Region
from joulediff.model.run import Run
from rewrites.moves import MOVES

LAYERS = 16
# Rows of each layer: the operators, and the module in Hugging Face.
ATTENTION = (
    "_scaled_dot_product_cudnn_attention ↔ empty, vllm::unified_kv_cache_update, vllm::unified_attention_with_output"
)
FUSED_NORM = "add, pow, mean, 2 more ↔ _C::fused_add_rms_norm"
ROWS = {
    ("mm ×3 ↔ mm", "model.layers.*.self_attn.q_proj"): LAYERS,
    ("mul, neg, cat, 2 more ↔ _C::rotary_embedding", "model.layers.*.self_attn"): LAYERS,
    (ATTENTION, "model.layers.*.self_attn"): LAYERS,
    ("mm", "model.layers.*.self_attn.o_proj"): LAYERS,
    (FUSED_NORM, "model.layers.*.post_attention_layernorm"): LAYERS,
    ("mm ×2 ↔ mm", "model.layers.*.mlp.gate_proj"): LAYERS,
    ("silu, mul ↔ empty, _C::silu_and_mul", "model.layers.*.mlp.act_fn"): LAYERS,
    ("mm", "model.layers.*.mlp.down_proj"): LAYERS,
    # vLLM adds the output of a layer in the norm of the next one, so the first norm is without a sum.
    ("pow, mean, add, 2 more ↔ empty, _C::rms_norm", "model.layers.*.input_layernorm"): 1,
    (FUSED_NORM, "model.layers.*.input_layernorm"): LAYERS - 1,
    (FUSED_NORM, "model.norm"): 1,
}


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    folder = paths.GOLDEN / "systems"
    return load(folder / "llama-hf.jd"), load(folder / "llama-vllm.jd")


@pytest.fixture(scope="module")
def regions(runs: tuple[Run, Run]) -> list[Region]:
    return match_regions(*runs)


@pytest.fixture(scope="module")
def rows(runs: tuple[Run, Run], regions: list[Region]) -> list[RegionGroup]:
    return [row for row in group_regions(*runs, regions) if row.kind == "equal" and row.ops_a and row.ops_b]


def joules(run: Run, ops: Iterable[int]) -> float:
    found = Costs(run).of(list(ops))
    return 0.0 if found is None else found.joules


def count_computing(run: Run, ops: Sequence[int]) -> int:
    return sum(run.ops[op].name not in MOVES and not is_view(run, op) for op in ops)


def count_products(run: Run, ops: Sequence[int]) -> int:
    """Return the number of elements that the matrix products among some operators make."""
    values = [value for op in ops if run.ops[op].name == "aten::mm" for value in run.ops[op].outputs]
    return sum(math.prod(run.values[value].shape) for value in values)


@pytest.mark.parametrize("side", [0, 1])
def test_nearly_all_joules_are_matched(runs: tuple[Run, Run], regions: list[Region], side: int) -> None:
    run = runs[side]
    matched = [
        op
        for each in regions
        if (each.a and each.b) or each.kind in ("movement", "constant")
        for op in (each.a, each.b)[side]
    ]
    assert len(matched) == len(set(matched))
    assert joules(run, matched) >= 0.97 * joules(run, range(len(run.ops))) > 10.0


def test_no_region_is_large(runs: tuple[Run, Run], regions: list[Region]) -> None:
    both = [each for each in regions if each.a and each.b]
    assert max(count_computing(runs[0], each.a) for each in both) <= 15
    assert max(count_computing(runs[1], each.b) for each in both) <= 15


def test_all_layers_have_the_same_rows(rows: list[RegionGroup]) -> None:
    layers = {
        (row.name, row.where): len(row.regions) for row in rows if row.where.startswith(("model.layers", "model.norm"))
    }
    assert layers == ROWS


def test_layers_are_paired_in_order(runs: tuple[Run, Run], regions: list[Region], rows: list[RegionGroup]) -> None:
    full = [row for row in rows if ROWS.get((row.name, row.where)) == LAYERS]
    assert len(full) == 8
    for row in full:
        ordered = sorted((regions[each] for each in row.regions), key=lambda region: region.b)
        modules = [runs[0].ops[each.a[-1]].module or "" for each in ordered]
        assert [each.split(".")[2] for each in modules] == [str(layer) for layer in range(LAYERS)]


def test_merged_products_are_paired_with_all_their_parts(runs: tuple[Run, Run], regions: list[Region]) -> None:
    counts = [(count_products(runs[0], each.a), count_products(runs[1], each.b)) for each in regions]
    products = [pair for pair in counts if any(pair)]
    assert len(products) == 4 * LAYERS + 1
    assert all(ours == theirs for ours, theirs in products)
