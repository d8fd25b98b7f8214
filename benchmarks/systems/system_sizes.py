"""What the programs of this folder share: their sizes, the device, and weights that look trained.

On a machine with a GPU the models have real sizes, elsewhere tiny ones. SYSTEMS_SIZE=tiny, small (as deep as the real
ones, but narrow) or real overrides this, SYSTEMS_DTYPE=float32 the float type, which is bfloat16.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = os.environ.get("SYSTEMS_SIZE", "real" if DEVICE == "cuda" else "tiny")
DTYPE = getattr(torch, os.environ.get("SYSTEMS_DTYPE", "bfloat16"))


def choose(*, tiny: Any, small: Any, real: Any) -> Any:
    """Return the one of three that belongs to the size."""
    return {"tiny": tiny, "small": small, "real": real}[SIZE]


def look_trained(model: torch.nn.Module) -> torch.nn.Module:
    """Change gains and biases, which random initialisation leaves at one and zero; return the model."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    return model


def place(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model on the device, in the float type, for inference."""
    return model.to(DEVICE, DTYPE).eval()


def make_step(run: Callable[[], object]) -> Callable[[], object]:
    """Return a step that runs without gradients."""

    def step() -> object:
        with torch.no_grad():
            return run()

    return step


def draw_tokens(batch: int, length: int, words: int) -> torch.Tensor:
    """Return random tokens."""
    return torch.randint(3, words, (batch, length), generator=torch.Generator().manual_seed(0)).to(DEVICE)
