"""Cumulative sales of the next two weeks for each store: bands from Monte Carlo draws of a small network."""

import torch
from demand import LEVELS, history, matrices, noise
from torch.nn import functional


def make_network(ws):
    w_in, w_mid, w_out = ws

    def network(x):
        h = functional.gelu(torch.mm(x.reshape(len(x), -1), w_in))
        h = functional.gelu(torch.mm(h, w_mid))
        mu, raw_sigma = torch.mm(h, w_out).chunk(2, dim=1)
        return mu, functional.softplus(raw_sigma)

    return network


def bands(trajectories, q):
    return torch.quantile(trajectories, q, dim=0).unbind(0)


def build():
    torch.manual_seed(0)
    x = history()
    eps = noise()
    network = make_network(matrices())
    q = torch.tensor(LEVELS).to(x)

    @torch.no_grad()
    def forecast():
        mu, sigma = network(x)
        trajectories = torch.cumsum(mu + sigma * eps, dim=2)
        return bands(trajectories, q)

    return forecast
