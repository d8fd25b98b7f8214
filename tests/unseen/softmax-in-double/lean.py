"""A small encoder whose attention weights are taken in a wider type."""

import math

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, LENGTH, WIDTH, HEADS, DEPTH = (16, 1024, 512, 8, 2) if DEVICE == "cuda" else (1, 384, 128, 8, 2)


class SelfAttention(nn.Module):
    def __init__(self, width, heads, softmax_dtype=torch.float32):
        super().__init__()
        self.heads = heads
        self.softmax_dtype = softmax_dtype
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = torch.softmax(scores, dim=-1, dtype=self.softmax_dtype).to(v.dtype)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def build():
    torch.manual_seed(0)
    encoder = nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(DEPTH))).to(DEVICE).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH).to(DEVICE)

    @torch.no_grad()
    def step():
        return encoder(x)

    return step
