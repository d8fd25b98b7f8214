"""Regression on tabular data with L2 regularisation, one batch."""

from itertools import pairwise

import torch
from price_table import standardised_sample


def perceptron(widths):
    layers = []
    for before, after in pairwise(widths):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def train_batch(net, optimiser, x, y):
    optimiser.zero_grad()
    error = net(x)[:, 0] - y
    loss = error.square().mean()
    loss.backward()
    optimiser.step()
    return loss.detach()


def build():
    if torch.cuda.is_available():
        device, columns, width, rows = "cuda", 1024, 4096, 128
    else:
        device, columns, width, rows = "cpu", 128, 768, 8
    hyper = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4}
    torch.manual_seed(0)
    net = perceptron([columns, width, width, width, width, 1]).to(device)
    x, y = (part.to(device) for part in standardised_sample(40_000, columns, rows))
    optimiser = torch.optim.SGD(net.parameters(), **hyper)

    def step():
        return train_batch(net, optimiser, x, y)

    return step
