"""Attention of one new token per sequence to a long context, with shared keys and values."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from torch.nn import functional as F


def make_step():
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    batch, heads, kv_heads, tokens = pick(2, 64), pick(8, 32), pick(2, 8), pick(64, 4096)
    q = torch.randn(batch, heads, 1, 128, device=DEVICE, dtype=kind)
    k, v = (torch.randn(batch, kv_heads, tokens, 128, device=DEVICE, dtype=kind) for _ in range(2))
    return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
