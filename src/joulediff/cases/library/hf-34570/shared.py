"""The eigenvalues of a symmetric matrix."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(eigenvalues):
    torch.manual_seed(0)
    size = pick(64, 512)
    x = torch.randn(size, size, device=DEVICE)
    symmetric = x + x.T

    def step():
        with torch.inference_mode():
            return eigenvalues(symmetric)

    return step
