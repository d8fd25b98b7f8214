"""A sentence encoder: embeddings, two mixing layers, a mean over tokens."""

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.tokens = nn.Linear(length, length)
        self.channels = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm(x).mT).mT
        return x + self.channels(x)


class SentenceEncoder(nn.Module):
    """Returns a unit vector for each sentence of a batch."""

    def __init__(self, vocabulary, width, length, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(*(Mixer(width, length) for _ in range(depth)))

    def forward(self, tokens):
        return nn.functional.normalize(self.layers(self.embedding(tokens)).mean(dim=-2), dim=-1)


def similarities(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    return queries @ documents.T
