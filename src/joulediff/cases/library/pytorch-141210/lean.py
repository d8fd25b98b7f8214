"""A product, then a sum."""

import torch
from shared import make_step


def build():
    return make_step(lambda bias, x, weight: torch.add(torch.mm(x, weight), bias))
