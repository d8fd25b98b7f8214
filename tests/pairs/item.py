"""A loop that waits for the device in every round to look at a number, and one that looks at the end."""

import torch

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("host", "item", "host", devices=("cuda",))


def _build(run):
    torch.manual_seed(0)
    size = pick(64, 1024)
    weight = torch.randn(size, size, device=DEVICE) / size**0.5
    x = torch.randn(size, size, device=DEVICE)

    def step():
        with torch.no_grad():
            return run(x, weight)

    return step


def _looking(x, weight):
    total = 0.0
    for _ in range(200):
        x = torch.tanh(x @ weight)
        total += x.abs().max().item()  # <- here
    return x, torch.tensor(total)


def _later(x, weight):
    totals = []
    for _ in range(200):
        x = torch.tanh(x @ weight)
        totals.append(x.abs().max())
    return x, torch.stack(totals).sum().cpu()


def wasteful():
    return _build(_looking)


def lean():
    return _build(_later)
