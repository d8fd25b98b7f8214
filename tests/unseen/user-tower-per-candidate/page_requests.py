"""A page of ranking requests, and the trained weights of the ranker that serves them."""

from itertools import pairwise

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"
REQUESTS, CANDIDATES = (64, 512) if LARGE else (24, 128)
USER_FEATURES, ITEM_FEATURES = (768, 512) if LARGE else (192, 128)
HIDDEN, SHARED = (1024, 512) if LARGE else (256, 128)

SIZES = {
    "user": [USER_FEATURES, HIDDEN, SHARED],
    "item": [ITEM_FEATURES, HIDDEN, SHARED],
    "head": [3 * SHARED, SHARED, 1],
}


def trained_weights():
    """Return for each part of the ranker a list of (weight, bias)."""
    return {
        part: [
            (torch.randn(after, before, device=DEVICE) / before**0.5, 0.1 * torch.randn(after, device=DEVICE))
            for before, after in pairwise(sizes)
        ]
        for part, sizes in SIZES.items()
    }


def page():
    """Return the features of the users of a page, and those of the candidates of each."""
    users = torch.randn(REQUESTS, USER_FEATURES, device=DEVICE)
    items = torch.randn(REQUESTS, CANDIDATES, ITEM_FEATURES, device=DEVICE)
    return users, items
