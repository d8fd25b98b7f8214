"""The encoder of the masked language model, and the masking of its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

IGNORED = -100
MASK = 1


class Block(nn.Module):
    """Attention and a feed-forward network, normalized before each."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        qkv = self.qkv(self.before_attention(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.down(functional.gelu(self.up(self.before_mlp(hidden))))


def mask_tokens(tokens: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return the tokens with a share of them masked, and labels that hold what stood there."""
    masked = torch.rand(tokens.shape) < share
    labels = torch.where(masked, tokens, IGNORED)
    return torch.where(masked, MASK, tokens), labels
