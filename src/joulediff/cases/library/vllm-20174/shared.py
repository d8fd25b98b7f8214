"""Attention of a prompt, all tokens at once."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from torch.nn import functional as F


def make_step():
    torch.manual_seed(0)
    shape = (pick(1, 4), pick(2, 32), pick(64, 4096), pick(64, 128))
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=kind) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
