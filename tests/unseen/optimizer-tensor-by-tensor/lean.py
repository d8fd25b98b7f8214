"""One update of a deep network of narrow layers, with the optimizer that the recipe names."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH, BATCH = (256, 96, 256) if DEVICE == "cuda" else (16, 48, 8)

RECIPE = {
    "optimizer": "NAdam",
    "options": {"lr": 1e-4, "weight_decay": 0.01, "foreach": True},
    "loss": "smooth_l1_loss",
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


def make_optimizer(parameters, recipe):
    return getattr(torch.optim, recipe["optimizer"])(parameters, **recipe["options"])


def build():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(WIDTH) for _ in range(DEPTH)), nn.Linear(WIDTH, 1)).to(DEVICE)
    optimizer = make_optimizer(model.parameters(), RECIPE)
    criterion = getattr(nn.functional, RECIPE["loss"])
    inputs, targets = torch.randn(BATCH, WIDTH).to(DEVICE), torch.randn(BATCH, 1).to(DEVICE)

    def step():
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
