"""Follow the subspace that the activations of each layer span, and how much of a probe lies in it."""

import logging

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS, TOKENS, WIDTH, RANK = (6, 2048, 96, 16) if DEVICE == "cuda" else (6, 512, 48, 8)
log = logging.getLogger("subspaces")


class Stack(nn.Module):
    """Hidden layers whose activations are kept for the analysis."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, tokens):
        kept = []
        for layer in self.layers:
            tokens = tokens + torch.tanh(layer(tokens))
            kept.append(tokens)
        return torch.stack(kept)


class SubspaceTracker:
    """Leading directions of centred activations."""

    def __init__(self, rank):
        self.rank = rank

    def directions(self, activations):
        centred = activations - activations.mean(dim=1, keepdim=True)
        left, values, _ = torch.linalg.svd(centred)
        return left[..., : self.rank], values

    def report(self, activations, probe):
        basis, values = self.directions(activations)
        inside = basis @ (basis.mT @ probe)
        energy = values.square()
        explained = energy[..., : self.rank].sum(-1) / energy.sum(-1)
        return {"explained": explained, "inside": inside.norm(dim=1)}


def build():
    torch.manual_seed(0)
    stack = Stack().to(DEVICE).eval()
    tracker = SubspaceTracker(RANK)
    tokens = torch.randn(TOKENS, WIDTH).to(DEVICE)
    probe = torch.randn(LAYERS, TOKENS, 4).to(DEVICE)
    log.info("tracking %d directions in each of %d layers", RANK, LAYERS)

    @torch.no_grad()
    def step():
        return tracker.report(stack(tokens), probe)

    return step
