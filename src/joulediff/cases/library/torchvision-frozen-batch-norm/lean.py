"""Batch norm in evaluation mode: the same numbers in one kernel."""

import torch
from shared import make_step


def build():
    return make_step(torch.nn.BatchNorm2d)
