"""Attention of one layer, from the projections of its queries, keys and values."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(attend):
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    batch, heads, tokens, width = pick(1, 8), pick(4, 32), pick(64, 1024), pick(64, 128)
    shape = (batch, tokens, heads, width)
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=kind) for _ in range(3))
    return lambda: attend(q, k, v)
