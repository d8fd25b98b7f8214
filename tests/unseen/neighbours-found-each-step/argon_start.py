"""Start of a small Lennard-Jones fluid in reduced units: positions on a shaken lattice, and thermal velocities."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDE = 16 if DEVICE == "cuda" else 7
SPACING = 1.2
BOX = SIDE * SPACING
CUTOFF = 2.5
TIME_STEP = 0.002
STEPS = 10


def start():
    axis = SPACING * torch.arange(SIDE, dtype=torch.float32)
    lattice = torch.cartesian_prod(axis, axis, axis)
    positions = lattice + 0.03 * torch.randn(SIDE**3, 3)
    velocities = torch.randn(SIDE**3, 3)
    velocities -= velocities.mean(0)
    return positions.to(DEVICE), velocities.to(DEVICE)
