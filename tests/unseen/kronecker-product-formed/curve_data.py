"""Data and first weights for the regression programs."""

import torch

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"
SIZES = [64, 96, 96, 96, 64] if LARGE else [24, 40, 40, 40, 16]
SAMPLES = 65536 if LARGE else 8192
DAMPING, DECAY, RATE = 0.3, 0.9, 1e-3


def first_matrices():
    torch.manual_seed(0)
    shapes = zip(SIZES[1:], SIZES[:-1], strict=True)
    return [(torch.randn(high, low) / low**0.5).to(DEVICE) for high, low in shapes]


def samples():
    torch.manual_seed(1)
    inputs = torch.randn(SAMPLES, SIZES[0])
    targets = torch.sin(inputs[:, : SIZES[-1]] * 2.0)
    return inputs.to(DEVICE), targets[:, : SIZES[-1]].to(DEVICE)
