"""Rank the passages that a search index returned for a query, by a small encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from passages import PAD, batch_of
from torch import nn

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class RankerConfig:
    vocabulary: int = 30000 if LARGE else 2000
    width: int = 768 if LARGE else 128
    heads: int = 12 if LARGE else 4
    depth: int = 6 if LARGE else 2
    longest: int = 384 if LARGE else 192
    passages: int = 128 if LARGE else 8


class Ranker(nn.Module):
    """One score for each passage."""

    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width, padding_idx=PAD)
        self.positions = nn.Embedding(config.longest, config.width)
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            dim_feedforward=4 * config.width,
            dropout=0.1,
            activation="gelu",
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.depth)
        self.scorer = nn.Linear(config.width, 1)

    def forward(self, tokens):
        padding = tokens == PAD
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        hidden = self.encoder(hidden, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        pooled = (hidden * kept).sum(dim=1) / kept.sum(dim=1)
        return self.scorer(pooled).squeeze(-1)


def order_of(scores, top):
    """Return the numbers of the best passages and their probabilities."""
    best = torch.topk(scores, top)
    return best.indices, torch.softmax(scores / 0.7, dim=0)[best.indices]


def build():
    torch.manual_seed(0)
    config = RankerConfig()
    ranker = Ranker(config).to(DEVICE).eval()
    tokens = batch_of(config.passages, config.longest, config.vocabulary).to(DEVICE)

    @torch.no_grad()
    def step():
        scores = ranker(tokens)
        indices, chances = order_of(scores, top=5)
        return scores, indices, chances

    return step
