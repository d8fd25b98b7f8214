"""Linear maps of the recurrent blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BlockDiagonalLinear(nn.Module):
    """A linear map of each block of the features."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        size = width // blocks
        self.blocks = blocks
        self.weight = nn.Parameter(torch.randn(blocks, size, size) * size**-0.5)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, self.blocks, hidden.shape[-1] // self.blocks).transpose(0, 1)
        mapped = torch.bmm(rows, self.weight.transpose(1, 2))
        return mapped.transpose(0, 1).reshape(hidden.shape) + self.bias


class RMSNorm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + 1e-6) * self.scale
