"""Routing of tokens to experts, layer after layer: the weights of the best ones, which sum to one."""

import torch
from joulediff.cases.sizes import DEVICE, pick

TOP = 8


def make_step(route):
    torch.manual_seed(0)
    layers = [torch.randn(pick(128, 1024), pick(64, 128), device=DEVICE) for _ in range(pick(1, 32))]
    return lambda: torch.stack([route(scores) for scores in layers])
