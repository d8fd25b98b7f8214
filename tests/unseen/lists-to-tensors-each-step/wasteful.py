"""Scores of the items that each shop may sell, out of the scores of a recommender for all items."""

import random

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, USERS, ITEMS, SHOPS, OFFERS = (1024, 512, 50000, 64, 1500) if DEVICE == "cuda" else (128, 256, 2000, 40, 500)


def offers_of_shops():
    """Return the items of each shop, as read from its price list."""
    generator = random.Random(0)
    return [generator.sample(range(ITEMS), OFFERS) for _ in range(SHOPS)]


class Recommender(nn.Module):
    def __init__(self, offers):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.items = nn.Parameter(torch.randn(WIDTH, ITEMS) / WIDTH**0.5)
        self.offers = offers

    def forward(self, users, shops):
        scores = self.tower(users) @ self.items
        offers = torch.tensor(self.offers, device=scores.device)
        return scores.gather(1, offers[shops])


def build():
    torch.manual_seed(0)
    model = Recommender(offers_of_shops()).to(DEVICE).eval()
    users = torch.randn(USERS, WIDTH).to(DEVICE)
    shops = torch.randint(SHOPS, (USERS,)).to(DEVICE)

    @torch.no_grad()
    def step():
        return model(users, shops).topk(10, dim=-1).values

    return step
