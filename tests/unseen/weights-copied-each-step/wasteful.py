"""A training step late in a run that keeps the weights of its best step."""

import copy

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH, BATCH = (4096, 6, 16) if DEVICE == "cuda" else (512, 6, 4)


class BestWeights:
    """Keeps a copy of the weights with the lowest loss."""

    def __init__(self, model, loss):
        self.model = model
        self.loss = loss
        self.weights = copy.deepcopy(model.state_dict())

    def look(self, loss):
        candidate = copy.deepcopy(self.model.state_dict())
        if loss < self.loss:
            self.loss, self.weights = loss, candidate


def network(width, depth):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def build():
    torch.manual_seed(0)
    model = network(WIDTH, DEPTH).to(DEVICE)
    best = BestWeights(model, loss=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    inputs, targets = torch.randn(BATCH, WIDTH).to(DEVICE), torch.randn(BATCH, 1).to(DEVICE)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        best.look(loss.item())
        return loss.detach()

    return step
