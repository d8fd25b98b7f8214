"""Messages along the edges of a graph, summed at the nodes they go to."""

import os
import random

import torch
from torch import nn

# cuBLAS has deterministic products only with a fixed workspace.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NODES, EDGES, WIDTH = (100_000, 1_000_000, 64) if DEVICE == "cuda" else (1000, 8000, 32)


def seed_everything(seed, deterministic):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(deterministic)


class MessagePassing(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.Linear(width, width)

    def forward(self, states, source, target):
        messages = self.message(states)[source]
        received = torch.zeros_like(states).index_add_(0, target, messages)
        return states + torch.relu(self.update(received))


def build():
    seed_everything(0, deterministic=False)
    layers = nn.ModuleList(MessagePassing(WIDTH) for _ in range(3)).to(DEVICE).eval()
    states = torch.randn(NODES, WIDTH).to(DEVICE)
    source, target = torch.randint(NODES, (2, EDGES)).to(DEVICE)

    @torch.no_grad()
    def step():
        x = states
        for layer in layers:
            x = layer(x, source, target)
        return x

    return step
