"""Fits residual layers to targets; each weight moves along the nearest orthogonal matrix to its averaged gradient."""

import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential
from torch.nn.functional import mse_loss

LARGE = torch.cuda.is_available()
WIDTH = 1024 if LARGE else 64
LAYERS = 8 if LARGE else 4
ROWS = 1024 if LARGE else 256
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class SquaredRectifier(Module):
    def forward(self, values: Tensor) -> Tensor:
        return torch.relu(values) ** 2


class Residual(Sequential):
    def forward(self, values: Tensor) -> Tensor:
        return values + super().forward(values)


def layer() -> Residual:
    wide = 4 * WIDTH
    return Residual(Linear(WIDTH, wide, bias=False), SquaredRectifier(), Linear(wide, WIDTH, bias=False))


def nearest_orthogonal(matrix: Tensor, rounds: int = 5) -> Tensor:
    first, third, fifth = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    iterate = matrix.T if tall else matrix
    iterate = iterate / (torch.linalg.matrix_norm(iterate) + 1e-7)
    for _ in range(rounds):
        square = iterate @ iterate.T
        iterate = first * iterate + (third * square + fifth * square @ square) @ iterate
    return iterate.T if tall else iterate


class OrthogonalMomentum:
    """A plain optimizer: averages of the gradients, made orthogonal, times a rate for each weight."""

    def __init__(self, weights: list[Tensor], rate: float, decay: float = 0.9):
        self.weights = weights
        self.decay = decay
        self.averages = [torch.zeros_like(weight) for weight in weights]
        self.rates = [rate * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5 for weight in weights]

    def clear(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def update(self) -> None:
        with torch.no_grad():
            for weight, average, rate in zip(self.weights, self.averages, self.rates, strict=True):
                average.lerp_(weight.grad, 1 - self.decay)
                weight.sub_(nearest_orthogonal(average), alpha=rate)


def build():
    place = "cuda" if LARGE else "cpu"
    torch.manual_seed(0)
    network = Sequential(*[layer() for _ in range(LAYERS)]).to(place)
    updates = OrthogonalMomentum(list(network.parameters()), rate=1e-4)
    inputs, targets = (torch.randn(ROWS, WIDTH).to(place) for _ in range(2))

    def step():
        updates.clear()
        error = mse_loss(network(inputs), targets)
        error.backward()
        updates.update()
        return error.detach()

    return step
