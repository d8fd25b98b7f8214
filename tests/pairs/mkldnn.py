"""A depthwise convolution on the CPU with oneDNN switched off, and with it."""

import torch

from pairs.common import Expected

EXPECTED = Expected("misconfiguration", "torch.backends.mkldnn.enabled", "setting", devices=("cpu",))


def _build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(128, 128, 3, padding=1, groups=128), torch.nn.ReLU()).eval()
    x = torch.randn(1, 128, 14, 14)

    def step():
        with torch.no_grad():
            return model(x)

    return step


def wasteful():
    torch.backends.mkldnn.enabled = False  # <- here
    return _build()


def lean():
    torch.backends.mkldnn.enabled = True
    return _build()
