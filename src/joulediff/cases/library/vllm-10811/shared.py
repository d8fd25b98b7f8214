"""Attention whose result goes to a buffer of the caller's."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(attend):
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    shape = (pick(1, 16), pick(4, 32), pick(32, 512), pick(64, 128))
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=kind) for _ in range(3))
    buffer = torch.zeros(shape, device=DEVICE, dtype=kind)

    def step():
        return torch.relu(attend(q, k, v, buffer))

    return step
