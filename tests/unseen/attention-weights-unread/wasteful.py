"""Latent vectors read a long sequence by cross attention, as in a perceiver."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, HEADS, BATCH, LATENTS, LENGTH = (1024, 16, 8, 1024, 4096) if DEVICE == "cuda" else (64, 8, 2, 128, 512)


def make_reader(attention, norm, need_weights):
    """Return a function that lets latents read a memory, for models that want the attention map and others."""

    def read(latents, memory):
        mixed, weights = attention(norm(latents), memory, memory, need_weights=need_weights)
        return latents + mixed, weights

    return read


class Perceiver(nn.Module):
    def __init__(self, width, heads, latents):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, width) / width**0.5)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.read = make_reader(self.attention, self.norm, need_weights=True)

    def forward(self, memory):
        latents = self.latents.expand(len(memory), -1, -1)
        for _ in range(2):
            latents, _ = self.read(latents, memory)
            latents = latents + self.mlp(latents)
        return latents


def build():
    torch.manual_seed(0)
    model = Perceiver(WIDTH, HEADS, LATENTS).to(DEVICE).eval()
    memory = torch.randn(BATCH, LENGTH, WIDTH).to(DEVICE)

    @torch.no_grad()
    def step():
        return model(memory).mean(dim=1)

    return step
