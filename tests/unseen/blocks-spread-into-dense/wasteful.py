"""Features of sequences by gated linear recurrences, after the recurrent block of Griffin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from linears_v2 import EPSILON, BlockDiagonalLinear, RMSNorm
from torch import Tensor, nn
from torch.nn import functional

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class GriffinConfig:
    width: int = 4096 if LARGE else 512
    heads: int = 16
    depth: int = 4 if LARGE else 2
    batch: int = 64 if LARGE else 8
    length: int = 128 if LARGE else 32
    power: float = 8.0
    epsilon: float = EPSILON


def linear_scan(decays: Tensor, values: Tensor) -> Tensor:
    """Return the states of a diagonal recurrence along the second dimension."""
    state = torch.zeros_like(values[:, 0])
    states = []
    for decay, value in zip(decays.unbind(1), values.unbind(1), strict=True):
        state = torch.addcmul(value, decay, state)
        states.append(state)
    return torch.stack(states, dim=1)


class GatedRecurrence(nn.Module):
    """A diagonal recurrence whose decay is gated by its input."""

    def __init__(self, config: GriffinConfig):
        super().__init__()
        self.power = config.power
        self.epsilon = config.epsilon
        self.input_gate = BlockDiagonalLinear(config.width, config.heads)
        self.decay_gate = BlockDiagonalLinear(config.width, config.heads)
        self.decay = nn.Parameter(torch.linspace(0.1, 2.0, config.width))

    def forward(self, values: Tensor) -> Tensor:
        input_gate = torch.sigmoid(self.input_gate(values))
        decay_gate = torch.sigmoid(self.decay_gate(values))
        log_decay = -self.power * decay_gate * functional.softplus(self.decay)
        decays = torch.exp(log_decay)
        scale = torch.sqrt(1.0 - torch.exp(2.0 * log_decay) + self.epsilon)
        return linear_scan(decays, input_gate * values * scale)


class RecurrentBlock(nn.Module):
    def __init__(self, config: GriffinConfig):
        super().__init__()
        self.norm = RMSNorm(config.width, config.epsilon)
        self.inner = nn.Linear(config.width, config.width)
        self.recurrence = GatedRecurrence(config)
        self.outer = nn.Linear(config.width, config.width)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.outer(self.recurrence(self.inner(self.norm(hidden))))


def build():
    torch.manual_seed(0)
    config = GriffinConfig()
    model = nn.Sequential(*(RecurrentBlock(config) for _ in range(config.depth)), RMSNorm(config.width))
    model = model.to(DEVICE).eval()
    hidden = torch.randn(config.batch, config.length, config.width).to(DEVICE)

    @torch.no_grad()
    def step():
        return model(hidden)

    return step
