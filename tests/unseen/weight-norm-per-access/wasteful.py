"""Train a recurrent cell with a weight-normalised kernel on a fixed batch."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HIDDEN, BATCH, STEPS = (4096, 64, 16) if DEVICE == "cuda" else (448, 4, 12)


class Recurrence(nn.Module):
    cache_weights = False

    def __init__(self, inputs, hidden):
        super().__init__()
        self.enter = nn.Linear(inputs, hidden)
        self.recur = weight_norm(nn.Linear(hidden, hidden, bias=False))

    def forward(self, sequence):
        state = torch.zeros(sequence.shape[1], self.enter.out_features, device=sequence.device)
        with parametrize.cached() if self.cache_weights else nullcontext():
            for inputs in self.enter(sequence):
                state = torch.tanh(inputs + self.recur(state))
        return state


class SequenceRegressor(Recurrence):
    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.readout = nn.Linear(hidden, 1)

    def forward(self, sequence):
        return self.readout(super().forward(sequence)).squeeze(-1)


def build():
    torch.manual_seed(0)
    model = SequenceRegressor(32, HIDDEN).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    sequence = torch.randn(STEPS, BATCH, 32).to(DEVICE)
    target = torch.randn(BATCH).to(DEVICE)

    def step():
        optimizer.zero_grad()
        prediction = model(sequence)
        loss = nn.functional.mse_loss(prediction, target)
        loss.backward()
        optimizer.step()
        return loss.detach(), prediction.detach()

    return step
