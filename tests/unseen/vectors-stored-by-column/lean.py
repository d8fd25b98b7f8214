"""Retrieve candidate items by id and rank them for every user."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cuda":
    ITEMS, DIM, USERS, CANDIDATES = 1_000_000, 128, 2048, 256
else:
    ITEMS, DIM, USERS, CANDIDATES = 200_000, 128, 32, 128


class ItemStore:
    """Item vectors from a feature-major export: one row a feature, one column an item."""

    def __init__(self, export):
        self.vectors = export.t().contiguous()

    def __len__(self):
        return self.vectors.shape[0]

    def lookup(self, ids):
        return self.vectors[ids]


class Ranker:
    def __init__(self, store, users):
        self.store = store
        self.users = users

    def rank(self, candidates, keep=10):
        vectors = self.store.lookup(candidates)
        scores = torch.einsum("ucd,ud->uc", vectors, self.users)
        best = scores.topk(keep, dim=1)
        return best.values, candidates.gather(1, best.indices)


def build():
    torch.manual_seed(0)
    store = ItemStore(torch.randn(DIM, ITEMS).to(DEVICE))
    ranker = Ranker(store, torch.randn(USERS, DIM).to(DEVICE))
    candidates = torch.randint(len(store), (USERS, CANDIDATES)).to(DEVICE)

    def step():
        return ranker.rank(candidates)

    return step
