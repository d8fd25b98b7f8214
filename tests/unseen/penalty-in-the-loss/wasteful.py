"""One training step of a network that predicts prices from a table; large weights are penalised."""

import torch
from price_table import standardised_sample
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FEATURES, HIDDEN, BATCH = (1024, 4096, 128) if DEVICE == "cuda" else (128, 768, 8)
LEARNING_RATE, MOMENTUM, PENALTY = 1e-3, 0.9, 1e-4


class PriceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(FEATURES, HIDDEN)
        self.inner = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.leave = nn.Linear(HIDDEN, 1)

    def forward(self, table):
        x = torch.relu(self.enter(table))
        for layer in self.inner:
            x = torch.relu(layer(x))
        return self.leave(x).squeeze(1)


def squared_weights(model):
    return sum(parameter.pow(2).sum() for parameter in model.parameters())


class Learner:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def learn(self, table, prices):
        self.optimizer.zero_grad()
        loss = functional.mse_loss(self.model(table), prices)
        objective = loss + 0.5 * PENALTY * squared_weights(self.model)
        objective.backward()
        self.optimizer.step()
        return loss.detach()


def build():
    torch.manual_seed(0)
    learner = Learner(PriceNet().to(DEVICE))
    table, prices = standardised_sample(40000, FEATURES, BATCH)
    table, prices = table.to(DEVICE), prices.to(DEVICE)

    def step():
        return learner.learn(table, prices)

    return step
