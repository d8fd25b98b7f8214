"""One training step of an autoencoder, in a loop that keeps an index of its data and tidies up after itself."""

import gc
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES, BATCH = ((4096, 2048, 1024, 512), 4096) if DEVICE == "cuda" else ((512, 256, 128, 64), 128)


def autoencoder(sizes):
    layers = []
    for wide, narrow in [*pairwise(sizes), *pairwise(sizes[::-1])]:
        layers += [nn.Linear(wide, narrow), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


@dataclass
class Recording:
    name: str
    spans: list[tuple[int, int]]


def read_index(count=30000):
    return [Recording(f"recording-{number}", [(number, number + 1)]) for number in range(count)]


def free_memory():
    gc.collect()


class Loop:
    def __init__(self, model, index):
        self.model = model
        self.index = index
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def update(self, batch):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(batch), batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def close(self):
        self.index = []
        free_memory()


def build():
    torch.manual_seed(0)
    gc.freeze()  # imported modules stay, so a collection need not look at them
    loop = Loop(autoencoder(SIZES).to(DEVICE), read_index())
    batch = torch.randn(BATCH, SIZES[0]).to(DEVICE)

    def step():
        return loop.update(batch)

    return step
