"""`set_float32_matmul_precision`: highest and high."""

import torch

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("misconfiguration", "torch.float32_matmul_precision", "setting", devices=("cuda",))


def _build():
    torch.manual_seed(0)
    size = pick(512, 4096)
    weight, x = torch.randn(size, size, device=DEVICE), torch.randn(size, size, device=DEVICE)
    return lambda: torch.tanh(x @ weight)


def wasteful():
    torch.set_float32_matmul_precision("highest")  # <- here
    return _build()


def lean():
    torch.set_float32_matmul_precision("high")
    return _build()
