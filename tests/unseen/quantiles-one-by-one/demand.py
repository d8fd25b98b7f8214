"""Demand of some shops as a forecaster sees it, with its weights and the draws of its sample paths."""

from itertools import pairwise

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"
SHOPS, PAST, CHANNELS, HORIZON = (512, 256, 16, 28) if LARGE else (64, 112, 8, 14)
WIDTH, PATHS = (1024, 512) if LARGE else (1024, 150)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def history():
    return torch.rand(SHOPS, PAST, CHANNELS).to(DEVICE)


def noise():
    return torch.randn(PATHS, SHOPS, HORIZON).to(DEVICE)


def matrices():
    """Return weights from the history to a hidden state, on to another, and to mean and spread of each day."""
    sizes = [PAST * CHANNELS, WIDTH, WIDTH, 2 * HORIZON]
    pairs = pairwise(sizes)
    return [torch.randn(before, after).div(before**0.5).to(DEVICE) for before, after in pairs]
