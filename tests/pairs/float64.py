"""A table made in double precision by accident, which makes everything after it double."""

import numpy as np
import torch

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("misconfiguration", "dtype", "layout")


def _build(scale):
    torch.manual_seed(0)
    size = pick(160, 2048)
    weight = torch.randn(size, size, device=DEVICE) / size**0.5
    x = torch.randn(size, size, device=DEVICE)
    scale = torch.as_tensor(scale, device=DEVICE)

    def step():
        with torch.no_grad():
            y = x * scale  # <- here
            for _ in range(3):
                y = torch.tanh(y @ weight.to(y.dtype))
            return y

    return step


def _table():
    size = pick(160, 2048)
    return np.linspace(0.5, 1.5, size)


def wasteful():
    return _build(_table())


def lean():
    return _build(_table().astype(np.float32))
