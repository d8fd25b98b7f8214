"""Grouped-query attention: four query heads share a head of keys and values."""

import torch
from joulediff.cases.sizes import DEVICE, pick

GROUP = pick(16, 4)


def make_step(attend):
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    batch, heads, tokens, width = pick(1, 4), pick(16, 32), pick(128, 2048), pick(64, 128)
    q = torch.randn(batch, heads, pick(4, 2048), width, device=DEVICE, dtype=kind)
    k, v = (torch.randn(batch, heads // GROUP, tokens, width, device=DEVICE, dtype=kind) for _ in range(2))
    return lambda: attend(q, k, v)
