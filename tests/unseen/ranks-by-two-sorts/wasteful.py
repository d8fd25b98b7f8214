"""Rank correlation between a model's scores for each query and the relevance that people gave."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
QUERIES, DOCUMENTS, WIDTH = (2048, 8192, 64) if DEVICE == "cuda" else (96, 1024, 32)


class Scorer(nn.Module):
    """A bilinear score of queries and documents."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Linear(WIDTH, WIDTH)
        self.documents = nn.Linear(WIDTH, WIDTH)

    def forward(self, queries, documents):
        return self.queries(queries) @ self.documents(documents).mT


def ranks(values):
    """Return the place of each value in its row, from the smallest."""
    order = values.argsort(dim=-1)
    return order.argsort(dim=-1)


class RankCorrelation(nn.Module):
    """Spearman's coefficient along the last dimension; the reference is ranked once."""

    def __init__(self, relevance):
        super().__init__()
        self.register_buffer("reference", self.standardized(ranks(relevance)))

    @staticmethod
    def standardized(places):
        centred = places.float() - places.float().mean(dim=-1, keepdim=True)
        return centred / centred.norm(dim=-1, keepdim=True)

    def forward(self, scores):
        return (self.standardized(ranks(scores)) * self.reference).sum(dim=-1)


def build():
    torch.manual_seed(0)
    scorer = Scorer().to(DEVICE).eval()
    queries = torch.randn(QUERIES, WIDTH).to(DEVICE)
    documents = torch.randn(DOCUMENTS, WIDTH).to(DEVICE)
    correlation = RankCorrelation(torch.rand(QUERIES, DOCUMENTS)).to(DEVICE)

    @torch.no_grad()
    def step():
        coefficients = correlation(scorer(queries, documents))
        return coefficients, coefficients.mean()

    return step
