"""One training step of an ad click ranker: bags of ids, dense features, a small tower."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = DEVICE == "cuda"
AD_ROWS = 6_000_000 if GPU else 200_000
PAGE_ROWS = 2_000_000 if GPU else 60_000
WIDTH = 64 if GPU else 32
BATCH = 2048 if GPU else 768
AD_BAG = 24
PAGE_BAG = 12
DENSE = 13
RATE = 0.05


class IdTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.ads = nn.EmbeddingBag(AD_ROWS, WIDTH, mode="mean", sparse=True)
        self.pages = nn.EmbeddingBag(PAGE_ROWS, WIDTH, mode="mean", sparse=True)

    def forward(self, ads, pages):
        return torch.cat([self.ads(ads), self.pages(pages)], dim=1)


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

    def forward(self, ads, pages, numbers):
        ids = self.ids(ads, pages)
        dense = self.dense(numbers)
        x = torch.cat([ids, dense], dim=1)
        x = F.relu(self.mix(x))
        return self.head(x).squeeze(1)


def make_batch():
    """Ids are hashed upstream, so they spread evenly over the rows."""
    ads = torch.randint(0, AD_ROWS, (BATCH, AD_BAG))
    pages = torch.randint(0, PAGE_ROWS, (BATCH, PAGE_BAG))
    numbers = torch.randn(BATCH, DENSE)
    clicks = (torch.rand(BATCH) < 0.1).float()
    return ads, pages, numbers, clicks


def train_step(model, optimizer, batch):
    """Forward, backward and update; returns the loss and the logits."""
    ads, pages, numbers, clicks = batch
    optimizer.zero_grad()
    logits = model(ads, pages, numbers)
    loss = F.binary_cross_entropy_with_logits(logits, clicks)
    loss.backward()
    optimizer.step()
    return loss.detach(), logits.detach()


def build():
    torch.manual_seed(0)
    model = Ranker()
    batch = make_batch()
    model = model.to(DEVICE)
    batch = [t.to(DEVICE) for t in batch]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step():
        return train_step(model, optimizer, batch)

    return step
