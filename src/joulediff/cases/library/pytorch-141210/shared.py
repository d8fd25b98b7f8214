"""The inputs of a linear layer of GPT-2 XL."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(apply):
    torch.manual_seed(0)
    rows, inner, width = pick(128, 8192), pick(128, 1600), pick(256, 6400)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    x = torch.randn(rows, inner, device=DEVICE, dtype=kind)
    weight, bias = torch.randn(inner, width, device=DEVICE, dtype=kind), torch.randn(width, device=DEVICE, dtype=kind)
    return lambda: apply(bias, x, weight)
