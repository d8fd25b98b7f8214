"""One round of training of a classifier of products: a trunk, and a head for each task, which take turns."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from catalogue import Trunk, batches_of
from torch import Tensor, nn
from torch.nn import functional

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
SCALE = 24 if LARGE else 1


def catalogue_tasks() -> dict[str, int]:
    """Return the number of classes of each task."""
    classes = {"category": 1600, "brand": 2400, "material": 900, "supplier": 2000, "customs": 1200}
    return {name: count * SCALE for name, count in classes.items()}


@dataclass
class TrainingConfig:
    features: int = 512 if LARGE else 128
    width: int = 1024 if LARGE else 128
    depth: int = 4
    rows: int = 256 if LARGE else 32
    lr: float = 1e-2
    tasks: dict[str, int] = field(default_factory=catalogue_tasks)


class ProductClassifier(nn.Module):
    def __init__(self, config: TrainingConfig):
        super().__init__()
        self.trunk = Trunk(config.features, config.width, config.depth)
        self.heads = nn.ModuleDict({name: nn.Linear(config.width, count) for name, count in config.tasks.items()})

    def forward(self, products: Tensor, task: str) -> Tensor:
        return self.heads[task](self.trunk(products))


def train_task(model, optimizer, task, products, labels):
    """Take one step for a task, and return its loss."""
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(products, task), labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def build():
    torch.manual_seed(0)
    config = TrainingConfig()
    model = ProductClassifier(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    batches = batches_of(config.tasks, config.rows, config.features, DEVICE)

    def step():
        losses = {}
        for task, (products, labels) in batches.items():
            losses[task] = train_task(model, optimizer, task, products, labels)
        return losses

    return step
