"""The trunk of the product classifier, and batches for its tasks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Trunk(nn.Module):
    """Features of a product in, a vector that all tasks read out."""

    def __init__(self, features: int, width: int, depth: int):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, products: Tensor) -> Tensor:
        hidden = torch.relu(self.stem(products))
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden))
        return self.norm(hidden)


def batches_of(tasks: dict[str, int], rows: int, features: int, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Return products and labels for each task."""
    batches = {}
    for name, classes in tasks.items():
        products = torch.randn(rows, features)
        labels = torch.randint(classes, (rows,))
        batches[name] = (products.to(device), labels.to(device))
    return batches
