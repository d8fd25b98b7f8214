"""One training step of an ad click ranker: bags of ids, dense features, a small tower."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = DEVICE == "cuda"
WIDTH = 64 if GPU else 32
BATCH = 2048 if GPU else 768
DENSE = 13
RATE = 0.05


class Table(NamedTuple):
    """One categorical feature: its vocabulary and the ids per example."""

    name: str
    rows: int
    bag: int


TABLES = (
    Table("ads", 6_000_000 if GPU else 200_000, 24),
    Table("pages", 2_000_000 if GPU else 60_000, 12),
)


class IdTower(nn.Module):
    """Looks up and pools every categorical feature, in the tables' order."""

    def __init__(self, tables=TABLES):
        super().__init__()
        self.bags = nn.ModuleDict()
        for table in tables:
            self.bags[table.name] = nn.EmbeddingBag(table.rows, WIDTH, mode="mean")

    def forward(self, ids):
        pooled = [bag(ids[name]) for name, bag in self.bags.items()]
        return torch.cat(pooled, dim=1)


class DenseTower(nn.Module):
    """Brings the counters of a request to the width of the tables."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(DENSE, 64)
        self.second = nn.Linear(64, WIDTH)

    def forward(self, x):
        x = F.relu(self.first(x))
        return F.relu(self.second(x))


class Ranker(nn.Module):
    """Probability of a click, as a logit."""

    def __init__(self):
        super().__init__()
        self.ids = IdTower()
        self.dense = DenseTower()
        self.mix = nn.Linear(3 * WIDTH, 128)
        self.head = nn.Linear(128, 1)

    def forward(self, ids, numbers):
        ids = self.ids(ids)
        dense = self.dense(numbers)
        x = torch.cat([ids, dense], dim=1)
        x = F.relu(self.mix(x))
        return self.head(x).squeeze(1)


def make_batch():
    """Ids are hashed upstream, so they spread evenly over the rows."""
    ids = {t.name: torch.randint(0, t.rows, (BATCH, t.bag)) for t in TABLES}
    numbers = torch.randn(BATCH, DENSE)
    clicks = (torch.rand(BATCH) < 0.1).float()
    return ids, numbers, clicks


def train_step(model, optimizer, batch):
    """Forward, backward and update; returns the loss and the logits."""
    ids, numbers, clicks = batch
    optimizer.zero_grad()
    logits = model(ids, numbers)
    loss = F.binary_cross_entropy_with_logits(logits, clicks)
    loss.backward()
    optimizer.step()
    return loss.detach(), logits.detach()


def build():
    torch.manual_seed(0)
    model = Ranker()
    ids, numbers, clicks = make_batch()
    model = model.to(DEVICE)
    ids = {name: t.to(DEVICE) for name, t in ids.items()}
    batch = (ids, numbers.to(DEVICE), clicks.to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step():
        return train_step(model, optimizer, batch)

    return step
