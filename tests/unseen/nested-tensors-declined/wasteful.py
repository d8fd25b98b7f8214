"""Rank the passages that a search index returned for a query, by a small encoder."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from passages import PAD, batch_of
from torch import Tensor, nn

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
logger = logging.getLogger("ranker")


@dataclass(frozen=True)
class RankerConfig:
    vocabulary: int = 30000 if LARGE else 2000
    width: int = 768 if LARGE else 128
    heads: int = 12 if LARGE else 4
    depth: int = 6 if LARGE else 2
    longest: int = 384 if LARGE else 192
    passages: int = 128 if LARGE else 8
    top: int = 5
    temperature: float = 0.7


def mean_of_kept(hidden: Tensor, padding: Tensor) -> Tensor:
    """Return the mean of the hidden states that are no padding."""
    kept = (~padding).unsqueeze(-1)
    return (hidden * kept).sum(dim=1) / kept.sum(dim=1)


class PassageRanker(nn.Module):
    """One score for each passage."""

    def __init__(self, config: RankerConfig):
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
        self.encoder = nn.TransformerEncoder(layer, config.depth, enable_nested_tensor=False)
        self.scorer = nn.Linear(config.width, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] > self.positions.num_embeddings:
            raise ValueError(f"passages of {tokens.shape[1]} tokens: at most {self.positions.num_embeddings}")
        padding = tokens == PAD
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        hidden = self.encoder(hidden, src_key_padding_mask=padding)
        return self.scorer(mean_of_kept(hidden, padding)).squeeze(-1)


def best_of(scores: Tensor, config: RankerConfig) -> tuple[Tensor, Tensor]:
    """Return the numbers of the best passages and their probabilities."""
    best = torch.topk(scores, config.top).indices
    return best, torch.softmax(scores / config.temperature, dim=0)[best]


def build():
    torch.manual_seed(0)
    config = RankerConfig()
    ranker = PassageRanker(config).to(DEVICE).eval()
    tokens = batch_of(config.passages, config.longest, config.vocabulary).to(DEVICE)
    logger.info("ranking %d passages on %s", config.passages, DEVICE)

    @torch.no_grad()
    def step():
        scores = ranker(tokens)
        return scores, *best_of(scores, config)

    return step
