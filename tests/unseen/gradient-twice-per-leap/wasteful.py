"""One Hamiltonian Monte Carlo proposal for all chains of a Bayesian logistic regression."""

import torch
from credit_posterior import LEAPS, STEP_SIZE, chains, observations
from torch import nn


class LogisticPosterior(nn.Module):
    """Normal prior, Bernoulli likelihood; a row of coefficients for each chain."""

    def __init__(self, features, labels, prior_scale=2.0):
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("labels", labels)
        self.prior_scale = prior_scale

    def forward(self, coefficients):
        logits = coefficients @ self.features.T
        likelihood = (logits * self.labels - nn.functional.softplus(logits)).sum(-1)
        prior = -0.5 * (coefficients / self.prior_scale).square().sum(-1)
        return likelihood + prior

    def slope(self, coefficients):
        coefficients = coefficients.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self(coefficients).sum(), coefficients)
        return gradient


class HamiltonianSampler:
    def __init__(self, posterior, step_size, leaps):
        self.posterior = posterior
        self.step_size = step_size
        self.leaps = leaps

    def kick(self, position, momentum):
        return momentum + 0.5 * self.step_size * self.posterior.slope(position)

    def leap(self, position, momentum):
        momentum = self.kick(position, momentum)
        position = position + self.step_size * momentum
        momentum = self.kick(position, momentum)
        return position, momentum

    def energy(self, position, momentum):
        with torch.no_grad():
            return 0.5 * momentum.square().sum(-1) - self.posterior(position)

    def propose(self, position, momentum):
        before = self.energy(position, momentum)
        for _ in range(self.leaps):
            position, momentum = self.leap(position, momentum)
        after = self.energy(position, momentum)
        return {"position": position, "acceptance": torch.exp(before - after).clamp(max=1.0)}


def build():
    torch.manual_seed(0)
    posterior = LogisticPosterior(*observations())
    sampler = HamiltonianSampler(posterior, STEP_SIZE, LEAPS)
    position, momentum = chains()

    def step():
        return sampler.propose(position, momentum)

    return step
