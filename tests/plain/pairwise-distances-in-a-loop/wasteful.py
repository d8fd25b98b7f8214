"""Find the nearest depot of each customer."""

import math

import numpy as np


def load(customers, depots):
    rng = np.random.default_rng(12)
    return rng.uniform(0, 100, (customers, 2)), rng.uniform(0, 100, (depots, 2))


def nearest(customers, depots):
    found = np.empty(len(customers), dtype=np.int64)
    for at, (x, y) in enumerate(customers):
        best, least = 0, math.inf
        for number, (u, v) in enumerate(depots):
            distance = math.hypot(x - u, y - v)
            if distance < least:
                best, least = number, distance
        found[at] = best
    return found


def build():
    customers, depots = load(400, 60)

    def step():
        return nearest(customers, depots)

    return step
