"""Trained parameters of a diagonal state-space model, and the recordings of some sensors."""

import math

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"
BATCH, LENGTH, WIDTH = (16, 4096, 256) if LARGE else (32, 512, 32)
STATES, DEPTH = (64, 6) if LARGE else (8, 2)


def recordings():
    """Return the latest part of each recording."""
    whole = torch.randn(BATCH, 14 * LENGTH, WIDTH)
    return whole[:, -LENGTH:].clone().to(DEVICE)


def layer_parameters():
    """Return a dict for each layer: logarithms of the steps, diagonal, output mixture, skip and mixing weight."""
    frequencies = math.pi * torch.arange(STATES)
    return [
        {
            "log_dt": torch.empty(WIDTH).uniform_(math.log(1e-3), math.log(1e-1)).to(DEVICE),
            "a": torch.complex(torch.full((WIDTH, STATES), -0.5), frequencies.expand(WIDTH, -1)).to(DEVICE),
            "c": torch.randn(WIDTH, STATES, dtype=torch.cfloat).to(DEVICE),
            "d": torch.randn(WIDTH).to(DEVICE),
            "mix": torch.randn(WIDTH, WIDTH).div(WIDTH**0.5).to(DEVICE),
        }
        for _ in range(DEPTH)
    ]
