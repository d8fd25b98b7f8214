"""Cross entropy with the classes in the middle of permuted logits, and with the classes last."""

import torch
from torch.nn import functional as F  # noqa: N812

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("api_misuse", "strides", "layout")


def _build(loss_of):
    torch.manual_seed(0)
    logits = torch.randn(2, pick(32, 512), pick(512, 50257), device=DEVICE)
    target = torch.randint(0, logits.shape[-1], logits.shape[:-1], device=DEVICE)

    def step():
        with torch.no_grad():
            return loss_of(logits, target)

    return step


def _permuted(logits, target):
    return F.cross_entropy(logits.permute(0, 2, 1), target)  # <- here


def _flat(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def wasteful():
    return _build(_permuted)


def lean():
    return _build(_flat)
