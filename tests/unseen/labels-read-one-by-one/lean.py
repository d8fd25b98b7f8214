"""Test a text classifier batch by batch and keep the confusion counts that the report of the run shows."""

from collections import Counter

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, LENGTH, WIDTH = (512, 128, 512) if DEVICE == "cuda" else (1024, 12, 32)
VOCABULARY, CLASSES = 10000, 12


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens):
        maps = torch.relu(self.convolution(self.embedding(tokens).mT))
        return self.head(maps.amax(dim=-1))


class ConfusionCounts:
    """Counts of pairs of a true class and a predicted one."""

    def __init__(self):
        self.counts = Counter()

    def reset(self):
        self.counts.clear()

    def update(self, truths, guesses):
        for truth, guess in zip(truths.tolist(), guesses.tolist(), strict=True):
            self.counts[int(truth), int(guess)] += 1

    def recall(self):
        totals = [sum(self.counts[truth, guess] for guess in range(CLASSES)) for truth in range(CLASSES)]
        return [self.counts[truth, truth] / max(total, 1) for truth, total in enumerate(totals)]


def build():
    torch.manual_seed(0)
    classifier = TextClassifier().to(DEVICE).eval()
    confusion = ConfusionCounts()
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH)).to(DEVICE)
    truths = torch.randint(CLASSES, (BATCH,)).to(DEVICE)

    @torch.no_grad()
    def step():
        confusion.reset()
        logits = classifier(tokens)
        confusion.update(truths, logits.argmax(dim=-1))
        return {"logits": logits, "recall": confusion.recall()}

    return step
