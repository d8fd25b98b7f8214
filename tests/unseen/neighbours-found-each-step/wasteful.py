"""Molecular dynamics of a Lennard-Jones fluid with velocity Verlet and a pair list."""

from dataclasses import dataclass, field

import torch
from argon_start import BOX, CUTOFF, STEPS, TIME_STEP, start


@dataclass(frozen=True)
class NeighbourSettings:
    cutoff: float = CUTOFF
    skin: float = 0.4
    rebuild_every: int = 1


@dataclass(frozen=True)
class RunSettings:
    steps: int = STEPS
    time_step: float = TIME_STEP
    box: float = BOX
    neighbours: NeighbourSettings = field(default_factory=NeighbourSettings)


class Fluid:
    """Atoms of mass one in a periodic cube."""

    def __init__(self, settings, positions, velocities):
        self.settings = settings
        self.positions = positions
        self.velocities = velocities
        self.pairs = None

    def displacements(self, first, second):
        apart = first - second
        return apart - self.settings.box * torch.round(apart / self.settings.box)

    def build_pairs(self):
        reach = self.settings.neighbours.cutoff + self.settings.neighbours.skin
        apart = self.displacements(self.positions[:, None], self.positions[None, :])
        near = apart.square().sum(-1) < reach**2
        self.pairs = near.triu_(1).nonzero().unbind(1)

    def forces(self):
        first, second = self.pairs
        apart = self.displacements(self.positions[first], self.positions[second])
        squared = apart.square().sum(-1)
        inside = squared < self.settings.neighbours.cutoff**2
        sixth = torch.where(inside, squared.reciprocal() ** 3, 0.0)
        energy = 4.0 * (sixth * sixth - sixth).sum()
        pull = (24.0 * (2.0 * sixth * sixth - sixth) / squared)[:, None] * apart
        total = torch.zeros_like(self.positions)
        total.index_add_(0, first, pull)
        total.index_add_(0, second, pull, alpha=-1)
        return total, energy

    def run(self):
        dt = self.settings.time_step
        energies = []
        self.build_pairs()
        force, _ = self.forces()
        for number in range(1, self.settings.steps + 1):
            self.velocities = self.velocities + 0.5 * dt * force
            self.positions = self.positions + dt * self.velocities
            if number % self.settings.neighbours.rebuild_every == 0:
                self.build_pairs()
            force, energy = self.forces()
            self.velocities = self.velocities + 0.5 * dt * force
            energies.append(energy)
        return self.positions, self.velocities, torch.stack(energies)


def build():
    torch.manual_seed(0)
    positions, velocities = start()
    settings = RunSettings()

    @torch.no_grad()
    def step():
        return Fluid(settings, positions, velocities).run()

    return step
