"""Posterior mean of a Gaussian process with a squared exponential kernel."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {"cuda": (4096, 2048, 32), "cpu": (400, 100, 8)}


def squared_exponential(left, right, scale=2.0):
    gaps = (left.square().sum(dim=1)[:, None] + right.square().sum(dim=1)[None, :] - 2.0 * left @ right.T).clamp(min=0)
    return torch.exp(-0.5 * gaps / scale**2)


def posterior_mean(train, targets, query, noise=0.5):
    covariance = squared_exponential(train, train)
    covariance.diagonal().add_(noise)
    weights = torch.linalg.inv(covariance) @ targets
    return squared_exponential(query, train) @ weights


def build():
    torch.manual_seed(0)
    count, asked, dim = SIZES[DEVICE]
    train = torch.randn(count, dim).to(DEVICE)
    targets = torch.sin(train[:, :1]) + 0.1 * torch.randn(count, 1).to(DEVICE)
    query = torch.randn(asked, dim).to(DEVICE)

    def step():
        return posterior_mean(train, targets, query)

    return step
