"""A chain of products whose end the program waits for."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step():
    torch.manual_seed(0)
    size = pick(64, 4096)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    x = torch.randn(size, size, device=DEVICE, dtype=kind)
    weight = torch.randn(size, size, device=DEVICE, dtype=kind) / size**0.5

    def step():
        y = x
        for _ in range(100):
            y = y @ weight
        if DEVICE != "cpu":
            torch.cuda.synchronize()
        return y

    return step
