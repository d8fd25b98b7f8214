"""Eight products with parts of a matrix, and one with the whole: weights that only the lean program has."""

import torch

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("api_misuse", "Linear", "call_path")


def _parts():
    torch.manual_seed(0)
    width = pick(128, 1024)
    x = torch.randn(pick(16, 256), width, device=DEVICE)
    return x, [torch.nn.Linear(width, width // 8, device=DEVICE) for _ in range(8)]


def wasteful():
    x, parts = _parts()

    def step():
        with torch.no_grad():
            y = torch.cat([part(x) for part in parts], -1)  # <- here
            return torch.relu(y)

    return step


def lean():
    x, parts = _parts()
    whole = torch.nn.Linear(x.shape[1], x.shape[1], device=DEVICE)
    with torch.no_grad():
        whole.weight.copy_(torch.cat([part.weight for part in parts]))
        whole.bias.copy_(torch.cat([part.bias for part in parts]))

    def step():
        with torch.no_grad():
            return torch.relu(whole(x))

    return step
