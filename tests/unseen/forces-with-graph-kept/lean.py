"""Relaxes a batch of molecules with a learned pair potential: energies, forces and a move along the forces."""

import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MOLECULES, ATOMS, WIDTH, LAYERS = (64, 64, 256, 4) if DEVICE == "cuda" else (8, 24, 32, 2)
RADIAL = 16


class RadialBasis(nn.Module):
    def __init__(self, cutoff=5.0):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.0, cutoff, RADIAL))
        self.width = (RADIAL / cutoff) ** 2

    def forward(self, distances):
        return torch.exp(-self.width * (distances.unsqueeze(-1) - self.centres).square())


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Sequential(nn.Linear(RADIAL, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.update = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, atoms, basis):
        messages = (self.filters(basis) * atoms.unsqueeze(1)).sum(dim=2)
        return atoms + self.update(messages)


class EnergyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.species = nn.Embedding(10, WIDTH)
        self.basis = RadialBasis()
        self.interactions = nn.ModuleList(Interaction() for _ in range(LAYERS))
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, numbers, positions):
        offsets = positions.unsqueeze(2) - positions.unsqueeze(1)
        distances = (offsets.square().sum(dim=-1) + 1e-6).sqrt()
        basis = self.basis(distances)
        atoms = self.species(numbers)
        for interaction in self.interactions:
            atoms = interaction(atoms, basis)
        return self.readout(atoms).sum(dim=(1, 2))


class ForceField:
    """Energies and forces of molecules, by differentiation of the energy."""

    def __init__(self, model, differentiable=False, name="production"):
        self.model = model.requires_grad_(False)
        self.differentiable = differentiable
        self.name = name
        logger.debug("force field %s is ready", name)

    def energy_and_forces(self, numbers, positions):
        places = positions.detach().requires_grad_()
        energies = self.model(numbers, places)
        (slopes,) = torch.autograd.grad(energies.sum(), places, create_graph=self.differentiable)
        return energies.detach(), -slopes.detach()


class Relaxation:
    def __init__(self, force_field, rate=0.01, longest=0.1):
        self.force_field = force_field
        self.rate = rate
        self.longest = longest

    def move(self, numbers, positions):
        energies, forces = self.force_field.energy_and_forces(numbers, positions)
        shifts = (self.rate * forces).clamp(-self.longest, self.longest)
        return energies, positions + shifts


def build():
    torch.manual_seed(0)
    force_field = ForceField(EnergyModel().to(DEVICE).eval())
    relaxation = Relaxation(force_field)
    numbers = torch.randint(10, (MOLECULES, ATOMS)).to(DEVICE)
    start = 3.0 * torch.randn(MOLECULES, ATOMS, 3).to(DEVICE)

    def step():
        positions = start
        for _ in range(3):
            energies, positions = relaxation.move(numbers, positions)
        return energies, positions

    return step
