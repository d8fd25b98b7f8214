"""Keep the best tokens of every distribution and renormalise, as a sampler does."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH, VOCABULARY = (256, 1024, 128_000) if DEVICE == "cuda" else (8, 256, 16_000)


class LogitsWarper:
    def __call__(self, logits):
        raise NotImplementedError


class Temperature(LogitsWarper):
    def __init__(self, temperature):
        self.temperature = temperature

    def __call__(self, logits):
        return logits / self.temperature


class KeepBest(LogitsWarper):
    def __init__(self, keep):
        self.keep = keep

    def __call__(self, logits):
        cutoff = torch.sort(logits, dim=-1, descending=True).values[:, self.keep - 1 : self.keep]
        return logits.masked_fill(logits < cutoff, float("-inf"))


def build():
    torch.manual_seed(0)
    head = (torch.randn(WIDTH, VOCABULARY) * WIDTH**-0.5).to(DEVICE)
    hidden = torch.randn(BATCH, WIDTH).to(DEVICE)
    warpers = [Temperature(0.7), KeepBest(50)]

    def step():
        logits = hidden @ head
        for warp in warpers:
            logits = warp(logits)
        return torch.softmax(logits, dim=-1)

    return step
