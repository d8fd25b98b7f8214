"""Word vectors by skip-grams with negative samples; frequent words are drawn more often."""

import random
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn
from torch.nn import functional

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class SkipGramConfig:
    vocabulary: int = 1_000_000 if LARGE else 120_000
    width: int = 300 if LARGE else 64
    pairs: int = 4096 if LARGE else 512
    negatives: int = 5
    lr: float = 0.05
    seed: int = 17


def counts_of(vocabulary):
    """Return counts of words after Zipf, the most frequent first."""
    return [1 + 10_000_000 // (rank + 3) for rank in range(vocabulary)]


class NegativeSampler:
    def __init__(self, counts, negatives, seed):
        self.words = range(len(counts))
        self.cumulative = list(accumulate(count**0.75 for count in counts))
        self.negatives = negatives
        self.random = random.Random(seed)

    def draw(self, pairs):
        drawn = self.random.choices(self.words, cum_weights=self.cumulative, k=pairs * self.negatives)
        return torch.tensor(drawn).view(pairs, self.negatives)


class SkipGram(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.centers = nn.Embedding(config.vocabulary, config.width, sparse=True)
        self.contexts = nn.Embedding(config.vocabulary, config.width, sparse=True)
        nn.init.uniform_(self.centers.weight, -0.5 / config.width, 0.5 / config.width)
        nn.init.uniform_(self.contexts.weight, -0.5 / config.width, 0.5 / config.width)

    def forward(self, center, context, negatives):
        middle = self.centers(center).unsqueeze(1)
        positive = (middle * self.contexts(context).unsqueeze(1)).sum(dim=-1)
        negative = (middle * self.contexts(negatives)).sum(dim=-1)
        return -(functional.logsigmoid(positive).sum(dim=1) + functional.logsigmoid(-negative).sum(dim=1)).mean()


def build():
    torch.manual_seed(0)
    config = SkipGramConfig()
    model = SkipGram(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    sampler = NegativeSampler(counts_of(config.vocabulary), config.negatives, config.seed)
    center = torch.randint(config.vocabulary, (config.pairs,)).to(DEVICE)
    context = torch.randint(config.vocabulary, (config.pairs,)).to(DEVICE)

    def step():
        negatives = sampler.draw(config.pairs).to(DEVICE)
        loss = model(center, context, negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
