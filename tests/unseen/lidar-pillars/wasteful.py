"""Encodes lidar sweeps as pillars on a bird's-eye map, bit-reproducible so that a drive can be replayed."""

import contextlib
import logging
import os
from dataclasses import dataclass

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
log = logging.getLogger("pillars")


@dataclass
class PillarOptions:
    points: int = 60000 if DEVICE == "cuda" else 4000
    sweeps: int = 4
    extent: float = 48.0
    cell: float = 0.5
    max_pillars: int = 40000
    max_points: int = 64
    width: int = 64 if DEVICE == "cuda" else 8


@contextlib.contextmanager
def reproducible():
    """A replayed drive must give the same maps, bit for bit."""
    before = torch.are_deterministic_algorithms_enabled()
    before_fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = before_fill


class Pillars:
    """Sorts the points of a sweep into the cells of a grid; a sweep may fill up to `max_pillars` cells."""

    def __init__(self, options):
        self.options = options
        self.side = int(2 * options.extent / options.cell)

    def cells(self, points):
        o = self.options
        place = ((points[:, :2] + o.extent) / o.cell).long().clamp(0, self.side - 1)
        return place[:, 0] * self.side + place[:, 1]

    def __call__(self, points):
        o = self.options
        cells, order = torch.sort(self.cells(points), stable=True)
        points = points[order]
        keys, pillar, counts = torch.unique_consecutive(cells, return_inverse=True, return_counts=True)
        first = counts.cumsum(0) - counts
        slot = torch.arange(len(points), device=points.device) - first[pillar]
        kept = (slot < o.max_points) & (pillar < o.max_pillars)
        table = torch.empty(o.max_pillars, o.max_points, points.shape[1], device=points.device)
        table[pillar[kept], slot[kept]] = points[kept]
        counts = counts[: o.max_pillars].clamp(max=o.max_points)
        keys = keys[: o.max_pillars]
        deepest = int(counts.max())
        return table[: len(keys), :deepest], counts, keys


class PillarNet(nn.Module):
    """One vector for each pillar: the strongest answer among its points."""

    def __init__(self, options, side):
        super().__init__()
        self.side = side
        self.width = options.width
        self.lift = nn.Linear(4, options.width)

    def forward(self, table, counts, keys):
        used = torch.arange(table.shape[1], device=table.device) < counts[:, None]
        values = torch.where(used[..., None], table, 0.0)
        answers = torch.relu(self.lift(values)) * used[..., None]
        vectors = answers.amax(dim=1)
        bird = torch.zeros(self.side * self.side, self.width, device=table.device)
        bird[keys] = vectors
        return bird.view(self.side, self.side, self.width)


def make_sweeps(options):
    sweeps = []
    for _ in range(options.sweeps):
        place = torch.randn(options.points, 3) * torch.tensor([16.0, 16.0, 1.0])
        strength = torch.rand(options.points, 1)
        sweeps.append(torch.cat([place, strength], dim=1).to(DEVICE))
    return sweeps


def build():
    torch.manual_seed(0)
    options = PillarOptions()
    pillars = Pillars(options)
    net = PillarNet(options, pillars.side).to(DEVICE).eval()
    sweeps = make_sweeps(options)
    log.info("%d sweeps on a map of %d cells", len(sweeps), pillars.side**2)

    def step():
        maps = []
        with torch.no_grad(), reproducible():
            for points in sweeps:
                maps.append(net(*pillars(points)))
        return torch.stack(maps)

    return step
