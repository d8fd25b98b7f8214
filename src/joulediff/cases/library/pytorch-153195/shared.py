"""A product of two float32 matrices."""

import torch

from joulediff.cases.sizes import DEVICE, pick


def make_step():
    torch.manual_seed(0)
    size = pick(160, 4096)
    a, b = (torch.randn(size, size, device=DEVICE) for _ in range(2))
    return lambda: a @ b
