"""Routing of tokens to experts: the weights of the best ones, which sum to one."""

import torch
from joulediff.cases.sizes import DEVICE, pick

TOP = 8


def make_step(route):
    torch.manual_seed(0)
    scores = torch.randn(pick(128, 16384), pick(64, 128), device=DEVICE)
    return lambda: route(scores)
