"""One round of training of a classifier of products: a trunk, and a head for each task, which take turns."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch
from catalogue import Trunk, batches_of
from torch import Tensor, nn
from torch.nn import functional

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
SCALE = 24 if LARGE else 1
logger = logging.getLogger(__name__)


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
    max_norm: float = 1.0
    tasks: dict[str, int] = field(default_factory=catalogue_tasks)


class ProductClassifier(nn.Module):
    def __init__(self, config: TrainingConfig):
        super().__init__()
        self.trunk = Trunk(config.features, config.width, config.depth)
        self.heads = nn.ModuleDict({name: nn.Linear(config.width, count) for name, count in config.tasks.items()})

    def forward(self, products: Tensor, task: str) -> Tensor:
        if task not in self.heads:
            raise KeyError(f"no head for task {task!r}")
        return self.heads[task](self.trunk(products))


class Trainer:
    """Takes one step for each task, in turn."""

    def __init__(self, config: TrainingConfig):
        self.config = config
        self.model = ProductClassifier(config).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr)

    def train_task(self, task: str, products: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(self.model(products, task), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
        self.optimizer.step()
        logger.debug("a step for %s", task)
        return loss.detach()

    def round(self, batches: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        return {task: self.train_task(task, *batch) for task, batch in batches.items()}


def build():
    torch.manual_seed(0)
    config = TrainingConfig()
    trainer = Trainer(config)
    batches = batches_of(config.tasks, config.rows, config.features, DEVICE)

    def step():
        return trainer.round(batches)

    return step
