"""Ranking stage of a shop's recommender: scores the candidates of each request and returns the best twenty."""

import torch
from page_requests import page, trained_weights
from torch import nn


def perceptron(layers):
    modules = []
    for weight, bias in layers:
        linear = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
        linear.load_state_dict({"weight": weight, "bias": bias})
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


class TwoTowerRanker(nn.Module):
    """A tower for the user, a tower for the item, and a head over both and their product."""

    def __init__(self, weights):
        super().__init__()
        self.user_tower = perceptron(weights["user"])
        self.item_tower = perceptron(weights["item"])
        self.head = perceptron(weights["head"])

    def forward(self, users, items):
        profiles = users.unsqueeze(1).expand(-1, items.shape[1], -1)
        user_vectors = self.user_tower(profiles)
        item_vectors = self.item_tower(items)
        crossed = torch.cat([user_vectors, item_vectors, user_vectors * item_vectors], dim=-1)
        return self.head(crossed).squeeze(-1)


class RankingService:
    def __init__(self, ranker, top=20):
        self.ranker = ranker.eval()
        self.top = top

    @torch.inference_mode()
    def rank(self, users, items):
        scores = self.ranker(users, items)
        best = scores.topk(self.top, dim=-1)
        return {"scores": scores, "best": best.values}


def build():
    torch.manual_seed(0)
    weights = trained_weights()
    users, items = page()
    service = RankingService(TwoTowerRanker(weights))

    def step():
        return service.rank(users, items)

    return step
