"""One update of item vectors by the pairs that users clicked: a few rows of a large table."""

from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class TableConfig:
    items: int = 4_000_000 if DEVICE == "cuda" else 100_000
    width: int = 64 if DEVICE == "cuda" else 32
    sparse: bool = True


class ItemTable(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.vectors = nn.Embedding(config.items, config.width, sparse=config.sparse)
        nn.init.normal_(self.vectors.weight, std=0.1)

    def forward(self, left, right):
        return (self.vectors(left) * self.vectors(right)).sum(dim=-1)


def build():
    torch.manual_seed(0)
    config = TableConfig()
    table = ItemTable(config).to(DEVICE)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.05)
    left, right = torch.randint(config.items, (2, 8192)).to(DEVICE)
    clicked = torch.randint(2, (8192,)).float().to(DEVICE)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(table(left, right), clicked)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
