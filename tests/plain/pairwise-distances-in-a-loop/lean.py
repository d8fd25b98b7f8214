"""Find the nearest depot of each customer."""

import numpy as np


def make_data(customer_count, depot_count):
    generator = np.random.default_rng(12)
    customers = generator.uniform(0, 100, (customer_count, 2))
    return customers, generator.uniform(0, 100, (depot_count, 2))


def closest_depots(customers, depots):
    gaps = customers[:, None, :] - depots[None, :, :]
    return np.einsum("ijk,ijk->ij", gaps, gaps).argmin(axis=1)


class Router:
    def __init__(self):
        self.customers, self.depots = make_data(400, 60)

    def __call__(self):
        return closest_depots(self.customers, self.depots)


def build():
    return Router()
