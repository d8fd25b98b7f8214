"""Trains a small classifier of leaf photographs in cycles and averages the weights of the cycles."""

import logging
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
log = logging.getLogger("leaves")


@dataclass
class TrainOptions:
    classes: int = 7
    width: int = 64 if DEVICE == "cuda" else 12
    size: int = 64 if DEVICE == "cuda" else 20
    batch: int = 64 if DEVICE == "cuda" else 16
    train_batches: int = 8
    cycles: int = 4
    steps_per_cycle: int = 2
    high: float = 0.05
    low: float = 0.01
    momentum: float = 9e-1


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class LeafNet(nn.Module):
    def __init__(self, options):
        super().__init__()
        w = options.width
        self.body = nn.Sequential(Block(3, w, 1), Block(w, 2 * w, 2), Block(2 * w, 2 * w, 2))
        self.head = nn.Linear(2 * w, options.classes)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


def make_batches(options, count):
    batches = []
    for _ in range(count):
        photos = torch.randn(options.batch, 3, options.size, options.size)
        labels = torch.randint(0, options.classes, (options.batch,))
        batches.append((photos.to(DEVICE), labels.to(DEVICE)))
    return batches


def rate(options, position):
    """Learning rate at a position of a cycle: a straight line from high to low."""
    share = position / max(1, options.steps_per_cycle - 1)
    return options.high + (options.low - options.high) * share


class Trainer:
    def __init__(self, model, train, options):
        self.model = model
        self.train = train
        self.options = options
        self.initial = {name: value.clone() for name, value in model.state_dict().items()}
        self.loss = nn.CrossEntropyLoss()

    def run_cycle(self, optimizer, cycle):
        o = self.options
        self.model.train()
        running = 0.0
        for position in range(o.steps_per_cycle):
            photos, labels = self.train[(cycle * o.steps_per_cycle + position) % len(self.train)]
            for group in optimizer.param_groups:
                group["lr"] = rate(o, position)
            optimizer.zero_grad()
            loss = self.loss(self.model(photos), labels)
            loss.backward()
            optimizer.step()
            running = running + loss.detach()
        return running / o.steps_per_cycle

    def fit(self):
        """One run from the initial weights; returns the averaged model and the loss of each cycle."""
        self.model.load_state_dict(self.initial)
        averaged = AveragedModel(self.model)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.options.high, momentum=self.options.momentum)
        losses = []
        for cycle in range(self.options.cycles):
            losses.append(self.run_cycle(optimizer, cycle))
            averaged.update_parameters(self.model)
            log.debug("cycle %d of %d", cycle + 1, self.options.cycles)
        update_bn(self.train, averaged, device=DEVICE)
        return averaged, torch.stack(losses)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    return torch.cat([model(photos) for photos, _ in batches])


def build():
    torch.manual_seed(0)
    options = TrainOptions()
    model = LeafNet(options).to(DEVICE)
    train = make_batches(options, options.train_batches)
    held_out = make_batches(options, 1)
    trainer = Trainer(model, train, options)

    def step():
        averaged, losses = trainer.fit()
        return evaluate(averaged, held_out), losses

    return step
