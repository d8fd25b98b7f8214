"""The hue of a batch of images shifted, as `ColorJitter` does."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(adjust_hue):
    torch.manual_seed(0)
    images = torch.rand(pick(1, 32), 3, pick(64, 512), pick(64, 512), device=DEVICE)
    return lambda: adjust_hue(images, 0.2)
