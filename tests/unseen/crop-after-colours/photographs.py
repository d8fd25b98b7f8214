"""Photographs of a training batch, and the draws that say how each is to be changed."""

from dataclasses import dataclass

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIDE, CROP = (256, 512, 224) if DEVICE == "cuda" else (24, 168, 126)
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
DISPLAY = 2.2


@dataclass
class Draws:
    brightness: torch.Tensor
    saturation: torch.Tensor
    gamma: torch.Tensor
    corners: list
    flips: list


def photographs():
    """Return photographs at half of their size."""
    full = torch.randint(256, (BATCH, 3, 2 * SIDE, 2 * SIDE)).float()
    return torch.nn.functional.avg_pool2d(full, 2).div(255.0).to(DEVICE)


def drawn():
    return Draws(
        brightness=torch.empty(BATCH, 1, 1, 1).uniform_(0.6, 1.4).to(DEVICE),
        saturation=torch.empty(BATCH, 1, 1, 1).uniform_(0.6, 1.4).to(DEVICE),
        gamma=torch.empty(BATCH, 1, 1, 1).uniform_(0.8, 1.25).to(DEVICE),
        corners=torch.randint(SIDE - CROP + 1, (BATCH, 2)).tolist(),
        flips=(torch.rand(BATCH) < 0.5).tolist(),
    )
