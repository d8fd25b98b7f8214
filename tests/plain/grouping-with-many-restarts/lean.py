"""Group points with k-means."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Options:
    groups: int = 6
    rounds: int = 12
    restarts: int = 1
    tolerance: float = 1e-4


def load(points):
    rng = np.random.default_rng(1)
    centres = rng.uniform(-10, 10, (6, 8))
    return centres[rng.integers(0, 6, points)] + 0.2 * rng.standard_normal((points, 8))


def distances(points, centres):
    return ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)


def fit(points, start, rounds):
    centres = points[start]
    for _ in range(rounds):
        labels = distances(points, centres).argmin(axis=1)
        centres = np.stack(
            [points[labels == at].mean(axis=0) if (labels == at).any() else centres[at] for at in range(len(start))]
        )
    return centres, distances(points, centres).min(axis=1).sum()


def k_means(points, options):
    best = None
    for restart in range(options.restarts):
        start = np.linspace(restart, len(points) - 1 - restart, options.groups).astype(int)
        centres, loss = fit(points, start, options.rounds)
        if best is None or loss < best[1]:
            best = (centres, loss)
    return best


def build():
    points, options = load(1_500), Options()

    def step():
        return sorted(k_means(points, options)[0].sum(axis=1).tolist())

    return step
