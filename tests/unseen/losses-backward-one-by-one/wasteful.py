"""One training step of a network with a shared trunk and three tasks."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH, BATCH = (2048, 8, 2048) if DEVICE == "cuda" else (128, 4, 256)
TASKS = {"age": 1, "income": 1, "segment": 12}


class MultiTask(nn.Module):
    def __init__(self, width, depth, tasks):
        super().__init__()
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
        self.trunk = nn.Sequential(*layers)
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in tasks.items()})

    def forward(self, x):
        shared = self.trunk(x)
        return {name: head(shared) for name, head in self.heads.items()}


def task_losses(outputs, targets):
    return {
        name: nn.functional.cross_entropy(output, targets[name])
        if output.shape[-1] > 1
        else nn.functional.smooth_l1_loss(output.squeeze(-1), targets[name])
        for name, output in outputs.items()
    }


def build():
    torch.manual_seed(0)
    model = MultiTask(WIDTH, DEPTH, TASKS).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(BATCH, WIDTH).to(DEVICE)
    targets = {
        name: (torch.randint(size, (BATCH,)) if size > 1 else torch.randn(BATCH)).to(DEVICE)
        for name, size in TASKS.items()
    }

    def step():
        optimizer.zero_grad()
        losses = task_losses(model(x), targets)
        for loss in losses.values():
            loss.backward(retain_graph=True)
        optimizer.step()
        return torch.stack(list(losses.values())).detach()

    return step
