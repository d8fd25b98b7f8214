"""Fit a convolutional regressor to spectra; the optimizer can be exchanged for one that needs a closure."""

import logging
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, POINTS, CHANNELS = (512, 1024, 128) if DEVICE == "cuda" else (32, 256, 32)
log = logging.getLogger("spectra")


@dataclass
class FitOptions:
    learning_rate: float = 1e-4
    momentum: float = 0.9
    log_every: int = 200


def regressor():
    return nn.Sequential(
        nn.Conv1d(1, CHANNELS, 7, padding=3),
        nn.ReLU(),
        nn.Conv1d(CHANNELS, CHANNELS, 5, padding=2),
        nn.ReLU(),
        nn.Conv1d(CHANNELS, CHANNELS, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(8),
        nn.Flatten(),
        nn.Linear(8 * CHANNELS, 3),
    )


class Fitter:
    def __init__(self, model, options):
        self.model = model.to(DEVICE).train()
        self.options = options
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.learning_rate, momentum=options.momentum)
        self.done = 0

    def fit_batch(self, spectra, targets):
        def closure():
            self.optimizer.zero_grad()
            loss = functional.smooth_l1_loss(self.model(spectra), targets)
            loss.backward()
            return loss

        loss = closure()
        self.optimizer.step()
        self.done += 1
        if self.done % self.options.log_every == 0:
            log.debug("batch %d", self.done)
        return loss.detach()


def build():
    torch.manual_seed(0)
    fitter = Fitter(regressor(), FitOptions())
    spectra = torch.randn(BATCH, 1, POINTS).to(DEVICE)
    targets = torch.randn(BATCH, 3).to(DEVICE)

    def step():
        return fitter.fit_batch(spectra, targets)

    return step
