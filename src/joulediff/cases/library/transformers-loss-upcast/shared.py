"""The loss of a language model, from its logits in bfloat16."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(loss_of):
    torch.manual_seed(0)
    vocabulary = pick(500, 32000)
    kind = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    logits = torch.randn(pick(1, 8), pick(64, 1024), vocabulary, device=DEVICE, dtype=kind)
    labels = torch.randint(0, vocabulary, logits.shape[:2], device=DEVICE)
    return lambda: loss_of(logits, labels)
