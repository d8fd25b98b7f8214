"""Logits of a language model and the tokens they should predict."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(loss_of):
    torch.manual_seed(0)
    logits = torch.randn(2, pick(32, 512), pick(512, 50257), device=DEVICE)
    target = torch.randint(0, logits.shape[-1], logits.shape[:-1], device=DEVICE)
    return lambda: loss_of(logits, target)
