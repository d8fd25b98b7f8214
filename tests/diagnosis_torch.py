"""Steps of PyTorch for the tests of diagnosis: captured on the CPU, with energies as if a GPU had run them."""

from __future__ import annotations

from typing import Any

import torch

from diagnosis_builders import Cost, Step, measured
from joulediff.model.run import Run
from rewrites.programs import record_step


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-1] ** -0.5


def record(step: Step, cost: Cost, **changes: Any) -> Run:
    """Return what a step does, measured."""
    return measured(record_step(step), cost, **changes)
