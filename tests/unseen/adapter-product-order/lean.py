"""A frozen projection stack with low-rank adapters."""

import argparse

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class AdaptedLinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * base.in_features**-0.5)
        self.up = nn.Parameter(torch.randn(base.out_features, rank) * 0.01)

    def forward(self, x):
        update = (x @ self.down.T) @ self.up.T
        return self.base(x) + self.scale * update


def make_stack(args):
    layers = []
    for _ in range(args.depth):
        layers += [AdaptedLinear(nn.Linear(args.width, args.width), args.rank, args.alpha), nn.SiLU()]
    return nn.Sequential(*layers)


def build():
    torch.manual_seed(0)
    args = argparse.Namespace(
        width=4096 if DEVICE == "cuda" else 640,
        tokens=512 if DEVICE == "cuda" else 48,
        rank=16,
        alpha=32,
        depth=4,
    )
    stack = make_stack(args).to(DEVICE).eval()
    x = torch.randn(args.tokens, args.width).to(DEVICE)

    @torch.no_grad()
    def step():
        return stack(x)

    return step
