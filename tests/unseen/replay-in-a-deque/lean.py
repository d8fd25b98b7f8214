"""Off-policy learner: fit action values to a log of play, with bootstrapped targets from a frozen copy."""

from dataclasses import dataclass, field
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812
from pong_log import CAPACITY, DEVICE, MINIBATCH, first_weights, observation_pool, recorded_play


@dataclass
class Ring:
    """A store of fixed size: when it is full, a new entry takes the place of the oldest."""

    size: int
    entries: list = field(default_factory=list)
    cursor: int = 0

    def add(self, entry):
        if len(self.entries) < self.size:
            self.entries.append(entry)
        else:
            self.entries[self.cursor] = entry
        self.cursor = (self.cursor + 1) % self.size


def draw(ring, rng, count):
    """Draw entries, and give back one tensor per column."""
    columns = zip(*rng.sample(ring.entries, count), strict=True)
    return [torch.tensor(column, device=DEVICE) for column in columns]


def mlp(layers, hidden):
    *inner, (last_weight, last_bias) = layers
    for weight, bias in inner:
        hidden = F.linear(hidden, weight, bias).relu()
    return F.linear(hidden, last_weight, last_bias)


def td_loss(layers, frozen, pool, columns, discount):
    here, chosen, gained, there, over = columns
    predicted = mlp(layers, pool[here]).gather(1, chosen.unsqueeze(1)).flatten()
    with torch.no_grad():
        future = mlp(frozen, pool[there]).max(dim=1).values
        wanted = gained + discount * (1.0 - over.float()) * future
    return F.smooth_l1_loss(predicted, wanted)


def build():
    ring = Ring(CAPACITY)
    for entry in recorded_play():
        ring.add(entry)
    pool = observation_pool()
    layers = [(weight.requires_grad_(), bias.requires_grad_()) for weight, bias in first_weights()]
    frozen = first_weights()
    sgd = torch.optim.SGD([tensor for layer in layers for tensor in layer], lr=1e-4)
    rng = Random(0)

    def update():
        loss = td_loss(layers, frozen, pool, draw(ring, rng, MINIBATCH), discount=0.99)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        return loss.detach()

    return update
