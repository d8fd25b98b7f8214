"""Word vectors by skip-grams with negative samples; frequent words are drawn more often."""

import random
from dataclasses import dataclass

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
    smoothing: float = 0.75
    lr: float = 0.05
    seed: int = 17


def counts_of(vocabulary: int) -> list[int]:
    """Return counts of words after Zipf, the most frequent first."""
    return [1 + 10_000_000 // (rank + 3) for rank in range(vocabulary)]


class UnigramSampler:
    """Draws words in proportion to their smoothed counts."""

    def __init__(self, counts: list[int], config: SkipGramConfig):
        if not 0.0 <= config.smoothing <= 1.0:
            raise ValueError(f"smoothing must lie between 0 and 1: {config.smoothing}")
        self.words = range(len(counts))
        self.weights = [count**config.smoothing for count in counts]
        self.shape = (config.pairs, config.negatives)
        self.random = random.Random(config.seed)

    def __call__(self) -> torch.Tensor:
        pairs, negatives = self.shape
        drawn = self.random.choices(self.words, weights=self.weights, k=pairs * negatives)
        return torch.tensor(drawn).view(self.shape)


class SkipGram(nn.Module):
    def __init__(self, config: SkipGramConfig):
        super().__init__()
        self.centers = nn.Embedding(config.vocabulary, config.width, sparse=True)
        self.contexts = nn.Embedding(config.vocabulary, config.width, sparse=True)
        bound = 0.5 / config.width
        for table in (self.centers, self.contexts):
            nn.init.uniform_(table.weight, -bound, bound)

    def forward(self, center, context, negatives):
        middle = self.centers(center).unsqueeze(1)
        positive = (middle * self.contexts(context).unsqueeze(1)).sum(dim=-1)
        negative = (middle * self.contexts(negatives)).sum(dim=-1)
        likelihood = functional.logsigmoid(positive).sum(dim=1) + functional.logsigmoid(-negative).sum(dim=1)
        return -likelihood.mean()


def build():
    torch.manual_seed(0)
    config = SkipGramConfig()
    model = SkipGram(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    sample = UnigramSampler(counts_of(config.vocabulary), config)
    center = torch.randint(config.vocabulary, (config.pairs,)).to(DEVICE)
    context = torch.randint(config.vocabulary, (config.pairs,)).to(DEVICE)

    def step():
        optimizer.zero_grad()
        loss = model(center, context, sample().to(DEVICE))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
