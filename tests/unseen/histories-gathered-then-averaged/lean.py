"""Scores users for an ad from what they clicked, which brands they saw and what they searched."""

from dataclasses import dataclass

import torch
import torch.nn as nn
from click_log import latest_ids

cuda = torch.cuda.is_available()


@dataclass(frozen=True)
class Slot:
    rows: int


SLOTS = (Slot(20_000), Slot(2_000), Slot(8_000))


class AdScorer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(slot.rows, width, mode="mean") for slot in SLOTS])
        self.fc1 = nn.Linear(len(SLOTS) * width, 256)
        self.fc2 = nn.Linear(256, 1)

    def forward(self, *clicks):
        pooled = torch.cat([bag(ids) for bag, ids in zip(self.bags, clicks, strict=True)], dim=-1)
        return self.fc2(self.fc1(pooled).relu()).sigmoid()[:, 0]


def build():
    batch, length, width = (8192, 100, 128) if cuda else (2048, 50, 64)
    torch.manual_seed(0)
    scorer = AdScorer(width)
    clicks = [latest_ids(slot.rows, batch, length) for slot in SLOTS]
    if cuda:
        scorer.cuda()
        clicks = [ids.cuda() for ids in clicks]
    scorer.eval()

    def step():
        with torch.no_grad():
            return scorer(*clicks)

    return step
