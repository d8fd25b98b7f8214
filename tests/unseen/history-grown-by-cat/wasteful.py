"""A rollout of a learned simulator that keeps the whole path of its states."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARTICLES, WIDTH, MOMENTS = (16384, 64, 64) if DEVICE == "cuda" else (512, 32, 64)


class Simulator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.drift = nn.Linear(width, width)

    def forward(self, state):
        return state + 0.1 * torch.tanh(self.drift(state))


class Rollout:
    def __init__(self, simulator, moments):
        self.simulator = simulator
        self.moments = moments

    @torch.no_grad()
    def __call__(self, state):
        path = state[None]
        for _ in range(self.moments):
            state = self.simulator(state)
            path = torch.cat([path, state[None]])
        return path


def build():
    torch.manual_seed(0)
    rollout = Rollout(Simulator(WIDTH).to(DEVICE), MOMENTS)
    start = torch.randn(PARTICLES, WIDTH).to(DEVICE)

    def step():
        path = rollout(start)
        return path[-1], path.mean(dim=(0, 1))

    return step
