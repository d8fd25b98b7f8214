"""Leapfrog trajectory of a set of chains on the posterior of a logit model, with its acceptance probabilities."""

import torch
from credit_posterior import LEAPS, STEP_SIZE, chains, observations
from torch.nn import functional

PRIOR_SD = 2.0


def log_density(x, y, beta):
    eta = beta @ x.t()
    fit = torch.sum(eta * y - functional.softplus(eta), dim=1)
    return fit - 0.5 * torch.sum((beta / PRIOR_SD) ** 2, dim=1)


def make_gradient(x, y):
    def gradient(beta):
        leaf = beta.clone().requires_grad_(True)
        total = log_density(x, y, leaf).sum()
        return torch.autograd.grad(total, leaf)[0]

    return gradient


def trajectory(gradient, q, p, eps, n):
    """Integrate n steps; neighbouring half kicks share what they know of the place between them."""
    g = gradient(q)
    for _ in range(n):
        p = p + (eps / 2) * g
        q = q + eps * p
        g = gradient(q)
        p = p + (eps / 2) * g
    return q, p


def build():
    torch.manual_seed(0)
    x, y = observations()
    q0, p0 = chains()
    gradient = make_gradient(x, y)

    @torch.no_grad()
    def hamiltonian(q, p):
        return 0.5 * torch.sum(p**2, dim=1) - log_density(x, y, q)

    def step():
        h0 = hamiltonian(q0, p0)
        q, p = trajectory(gradient, q0, p0, STEP_SIZE, LEAPS)
        return q, (h0 - hamiltonian(q, p)).exp().clamp(max=1.0)

    return step
