"""A few Verlet steps of liquid argon; returns the trajectory's end and the potential energy along the way."""

import torch
from argon_start import BOX, CUTOFF, STEPS, TIME_STEP, start

SHELL = 0.4
RELIST = 20


def minimum_image(d):
    return d - BOX * torch.round(d / BOX)


def verlet_list(x):
    d2 = minimum_image(x.unsqueeze(1) - x.unsqueeze(0)).pow(2).sum(dim=-1)
    mask = torch.triu(d2 < (CUTOFF + SHELL) ** 2, diagonal=1)
    return torch.nonzero(mask).unbind(dim=1)


def lennard_jones(x, i, j):
    d = minimum_image(x[i] - x[j])
    r2 = d.pow(2).sum(dim=-1)
    inv6 = torch.where(r2 < CUTOFF**2, (1.0 / r2).pow(3), 0.0)
    inv12 = inv6.square()
    f_ij = d * (24.0 * (2.0 * inv12 - inv6) / r2).unsqueeze(-1)
    f = torch.zeros_like(x).index_add_(0, i, f_ij).index_add_(0, j, f_ij, alpha=-1)
    return f, 4.0 * (inv12 - inv6).sum()


def integrate(x, v):
    i, j = verlet_list(x)
    f, _ = lennard_jones(x, i, j)
    history = x.new_zeros(STEPS)
    for k in range(STEPS):
        v = v + f * (0.5 * TIME_STEP)
        x = x + v * TIME_STEP
        if (k + 1) % RELIST == 0:
            i, j = verlet_list(x)
        f, history[k] = lennard_jones(x, i, j)
        v = v + f * (0.5 * TIME_STEP)
    return {"x": x, "v": v, "potential": history}


def build():
    torch.manual_seed(0)
    x0, v0 = start()
    return torch.no_grad()(lambda: integrate(x0, v0))
