"""A Gaussian blur of a batch of images, as in the training of SimCLR or DINO."""

import torch
from joulediff.cases.sizes import DEVICE, pick

SIZE, SIGMA = 23, 4.0


def make_step(blur):
    torch.manual_seed(0)
    images = torch.rand(pick(1, 32), 3, pick(48, 512), pick(48, 512), device=DEVICE)
    return lambda: blur(images)
