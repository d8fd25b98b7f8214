"""Order is work, merged products are whole, and folded weights are trusted where the outputs agree."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from joulediff.matching.match_runs import match_runs
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run
from rewrites.programs import record_step


def names(run: Run, ops: tuple[int, ...]) -> list[str]:
    return [run.ops[op].name.removeprefix("aten::") for op in ops]


def test_a_sort_is_no_movement_and_equals_topk() -> None:
    x = torch.randn(32, 400, generator=torch.Generator().manual_seed(0))
    a = record_step(lambda: torch.sort(x, dim=1, descending=True).values[:, :50] * 2)
    b = record_step(lambda: torch.topk(x, 50, dim=1).values * 2)
    found = [(names(a, each.a), names(b, each.b)) for each in match_runs(a, b).regions if each.kind == "equal"]
    assert (["sort", "slice"], ["topk"]) in found
    assert (["mul"], ["mul"]) in found


@pytest.mark.parametrize(
    "permute", [lambda x: x.flip(0), lambda x: x[torch.arange(31, -1, -1)], lambda x: x.roll(1, 0)]
)
def test_an_operator_that_permutes_computes(permute: object) -> None:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    run = record_step(lambda: permute(x) * 2)  # type: ignore[operator]
    regions = match_runs(run, run).regions
    computing = [op for each in regions if each.kind == "equal" for op in each.a]
    assert len(computing) >= 2


def test_a_merged_product_is_matched_with_all_its_parts() -> None:
    generator = torch.Generator().manual_seed(0)
    x, up, gate = (torch.randn(64, 64, generator=generator) for _ in range(3))
    merged = torch.cat([gate, up])

    def apart() -> torch.Tensor:
        return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)

    def together() -> torch.Tensor:
        left, right = functional.linear(x, merged).chunk(2, -1)
        return functional.silu(left) * right

    a, b = record_step(apart), record_step(together)
    found = [(names(a, each.a), names(b, each.b)) for each in match_runs(a, b).regions if each.kind == "equal"]
    products = [(ours, theirs) for ours, theirs in found if "mm" in ours or "mm" in theirs]
    assert [(ours.count("mm"), theirs.count("mm")) for ours, theirs in products] == [(2, 1)]


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    return torch.nn.utils.fuse_conv_bn_eval(conv, norm)


def test_folded_weights_are_trusted_where_outputs_agree_and_refused_elsewhere() -> None:
    torch.manual_seed(0)
    convs = [nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)]
    norms = [nn.BatchNorm2d(8).eval() for _ in range(3)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 2.0)
        norm.running_var.uniform_(0.5, 2.0)  # type: ignore[union-attr]
    plain = nn.Sequential(*(each for pair in zip(convs, norms, strict=True) for each in (*pair, nn.Tanh()))).eval()
    fused = nn.Sequential(*(each for pair in zip(convs, norms, strict=True) for each in (folded(*pair), nn.Tanh())))
    other = nn.Sequential(*(each for _ in convs for each in (nn.Conv2d(8, 8, 3, padding=1), nn.Tanh())))
    x = torch.randn(2, 8, 16, 16)
    with torch.no_grad():
        a, b, c = (record_step(lambda model=model: model(x)) for model in (plain, fused.eval(), other.eval()))
    match = match_runs(a, b)
    assert "weights differ" in match.notes[0]
    assert match.outputs_agree
    products = [each for each in match.regions if "convolution" in names(a, each.a)]
    assert [names(b, each.b).count("convolution") for each in products] == [1, 1, 1]
    with pytest.raises(JoulediffError, match="different weights"):
        match_runs(b, c)
