"""A short prompt through a decoder with rotary positions and a long context."""

from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Config:
    width: int = 1024 if DEVICE == "cuda" else 128
    heads: int = 8 if DEVICE == "cuda" else 2
    depth: int = 8 if DEVICE == "cuda" else 4
    context: int = 131072 if DEVICE == "cuda" else 4096
    theta: float = 500000.0


def rotary_table(context, dim, theta):
    frequencies = theta ** (-torch.arange(0, dim, 2, device=DEVICE) / dim)
    angles = torch.outer(torch.arange(context, device=DEVICE).float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, table):
    cos, sin = (part[: x.shape[-2]] for part in table)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x, table):
        config = self.config
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, config.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(rotate(q, table), rotate(k, table), v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.depth))

    def forward(self, x):
        config = self.config
        table = rotary_table(config.context, config.width // config.heads, config.theta)
        for layer in self.layers:
            x = layer(x, table)
        return x


def build():
    torch.manual_seed(0)
    config = Config()
    decoder = Decoder(config).to(DEVICE).eval()
    prompt = torch.randn(4, 64, config.width).to(DEVICE)

    @torch.no_grad()
    def step():
        return decoder(prompt)

    return step
