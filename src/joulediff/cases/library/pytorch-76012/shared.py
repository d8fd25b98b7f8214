"""A layer norm over the channels of an image, as in ConvNeXt: permuted to the end, normed, permuted back."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from torch.nn import functional as F


def make_step(memory_format):
    torch.manual_seed(0)
    width, size = pick(64, 384), pick(8, 56)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    x = torch.randn(pick(4, 64), width, size, size, device=DEVICE, dtype=kind).to(memory_format=memory_format)
    weight, bias = torch.randn(width, device=DEVICE, dtype=kind), torch.randn(width, device=DEVICE, dtype=kind)

    def step():
        channels_last = x.permute(0, 2, 3, 1)
        return F.layer_norm(channels_last, (width,), weight, bias).permute(0, 3, 1, 2)

    return step
