"""Probabilities of the next token after `top_k` and `top_p`, as `generate` computes them."""

import torch
from joulediff.cases.sizes import DEVICE, pick

TOP_K, TOP_P = 50, 0.9


def make_step(choose):
    torch.manual_seed(0)
    scores = torch.randn(pick(2, 64), pick(2000, 128000), device=DEVICE)
    return lambda: choose(scores)
