"""Two convolutions, with a row and with a column: a Gaussian is separable."""

import torch
from shared import SIGMA, SIZE, make_step
from torch.nn import functional as F


def blur(images):
    half = SIZE // 2
    x = torch.linspace(-half, half, SIZE, device=images.device)
    kernel = torch.softmax(-0.5 * (x / SIGMA) ** 2, dim=0)
    row, column = kernel.view(1, 1, 1, SIZE).expand(3, 1, 1, SIZE), kernel.view(1, 1, SIZE, 1).expand(3, 1, SIZE, 1)
    padded = F.pad(images, (half, half, half, half), mode="reflect")
    return F.conv2d(F.conv2d(padded, row, groups=3), column, groups=3)


def build():
    return make_step(blur)
