"""Fit a small tanh network; updates go through running second moments of each layer's two sides (K-FAC)."""

from dataclasses import dataclass

import torch
from curve_data import DAMPING, DECAY, DEVICE, RATE, first_matrices, samples


@dataclass
class Layer:
    """A matrix, with the moments of what goes in and of what comes back."""

    matrix: torch.Tensor
    moment_in: torch.Tensor
    moment_out: torch.Tensor

    @classmethod
    def around(cls, matrix):
        high, low = matrix.shape
        return cls(matrix.requires_grad_(), torch.eye(low, device=DEVICE), torch.eye(high, device=DEVICE))


def run(layers, x):
    """Return the prediction, and for each layer what it got and what it gave."""
    got, gave = [], []
    for layer in layers:
        got.append(x)
        gave.append(x @ layer.matrix.T)
        x = torch.tanh(gave[-1])
    return gave[-1], got, gave


def damped_inverse(moment):
    lower = torch.linalg.cholesky(moment + DAMPING * torch.eye(moment.shape[0], device=DEVICE))
    return torch.cholesky_inverse(lower)


@torch.no_grad()
def update(layer, gradient, x, delta):
    count = x.shape[0]
    layer.moment_in.lerp_(x.T @ x / count, 1.0 - DECAY)
    layer.moment_out.lerp_(delta.T @ delta * count, 1.0 - DECAY)
    natural = damped_inverse(layer.moment_out) @ gradient @ damped_inverse(layer.moment_in)
    layer.matrix.sub_(RATE * natural)


def fit_once(layers, x, wanted):
    prediction, got, gave = run(layers, x)
    loss = (prediction - wanted).square().mean()
    matrices = [layer.matrix for layer in layers]
    slopes = torch.autograd.grad(loss, matrices + gave)
    gradients, deltas = slopes[: len(layers)], slopes[len(layers) :]
    for parts in zip(layers, gradients, got, deltas, strict=True):
        update(*parts)
    return [loss.detach(), *(matrix.detach().clone() for matrix in matrices)]


def build():
    layers = [Layer.around(matrix) for matrix in first_matrices()]
    x, wanted = samples()
    return lambda: fit_once(layers, x, wanted)
