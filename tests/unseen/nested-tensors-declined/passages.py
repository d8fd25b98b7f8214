"""Passages for the ranker: synthetic tokens, padded on the right to the longest of the batch."""

from __future__ import annotations

import torch

PAD = 0


def lengths_of(count: int, longest: int) -> list[int]:
    """Return lengths as they come from a search index: a few long passages, many short ones."""
    return [max(4, longest * (1 + (7 * index) % 16) ** 2 // 256) for index in range(count)]


def batch_of(count: int, longest: int, vocabulary: int) -> torch.Tensor:
    """Return token numbers, (count, longest), padded on the right."""
    tokens = torch.full((count, longest), PAD)
    for row, length in enumerate(lengths_of(count, longest)):
        tokens[row, :length] = torch.randint(1, vocabulary, (length,))
    return tokens
