"""Convolutions on a model in the default memory format, and in channels_last."""

import torch

from pairs.common import DEVICE, ON_GPU, Expected, pick

EXPECTED = Expected("misconfiguration", "memory_format", "layout")


def _build(memory_format):
    torch.manual_seed(0)
    kind = torch.float16 if ON_GPU else torch.float32
    width, size = pick(128, 256), pick(14, 56)
    layers = [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3, padding=1)]
    model = torch.nn.Sequential(*layers).to(DEVICE, kind).to(memory_format=memory_format)
    x = torch.randn(pick(1, 64), width, size, size, device=DEVICE, dtype=kind).to(memory_format=memory_format)

    def step():
        with torch.no_grad():
            return model(x)  # <- here

    return step


def wasteful():
    return _build(torch.contiguous_format)


def lean():
    return _build(torch.channels_last)
