"""A copy to another layout before work that does not need one."""

import torch

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("redundant", "contiguous", "redundancy")


def _build(transpose):
    torch.manual_seed(0)
    rows, width = pick(256, 16384), pick(192, 4096)
    x = torch.randn(rows, width, device=DEVICE)

    def step():
        with torch.no_grad():
            return torch.relu(transpose(x))

    return step


def wasteful():
    return _build(lambda x: x.t().contiguous())  # <- here


def lean():
    return _build(lambda x: x.t())
