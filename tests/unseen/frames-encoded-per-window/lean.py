"""Timeline of what happens in a recorded match."""

from typing import NamedTuple

import torch
from rally_clip import STRIDE, WINDOW, clip, spotter_weights
from torch.nn.functional import conv2d, linear


class Weights(NamedTuple):
    kernels: list[torch.Tensor]
    expand: torch.Tensor
    classify: torch.Tensor


def describe(pictures, kernels):
    """Reduce each picture to one vector."""
    for kernel in kernels:
        pictures = conv2d(pictures, kernel, stride=2, padding=1).relu_()
    return pictures.flatten(2).mean(-1)


def slide(vectors):
    """Return the overlapping stretches of a sequence of vectors, each as one long row."""
    stretches = vectors.unfold(0, WINDOW, STRIDE)
    return stretches.transpose(1, 2).flatten(1)


@torch.no_grad()
def timeline(pictures, weights):
    rows = slide(describe(pictures, weights.kernels))
    hidden = linear(rows, weights.expand).tanh()
    return torch.softmax(linear(hidden, weights.classify), dim=1)


def build():
    weights = Weights(*spotter_weights())
    pictures = clip()

    def step():
        return timeline(pictures, weights)

    return step
