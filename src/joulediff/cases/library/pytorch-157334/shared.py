"""A 3x3 convolution of ResNet, in half precision."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(memory_format):
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    width, size = pick(128, 256), pick(14, 56)
    layer = torch.nn.Conv2d(width, width, 3, padding=1).to(DEVICE, kind).to(memory_format=memory_format)
    x = torch.randn(pick(1, 64), width, size, size, device=DEVICE, dtype=kind).to(memory_format=memory_format)

    def step():
        with torch.no_grad():
            return layer(x)

    return step
