"""Linear maps and norms of the recurrent blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-6


class BlockDiagonalLinear(nn.Module):
    """A linear map of each block of the features."""

    def __init__(self, width: int, blocks: int, std: float | None = None):
        super().__init__()
        if width % blocks:
            raise ValueError(f"{width} features do not make {blocks} equal blocks")
        size = width // blocks
        std = size**-0.5 if std is None else std
        self.weight = nn.Parameter(torch.randn(blocks, size, size) * std)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, torch.block_diag(*self.weight), self.bias)


class RMSNorm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(self, width: int, epsilon: float = EPSILON):
        super().__init__()
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + self.epsilon) * self.scale
