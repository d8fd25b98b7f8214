"""Log likelihood of observed returns under a network that predicts their mean and the factor of their covariance."""

import logging

import torch
from torch import nn
from torch.distributions import MultivariateNormal

logger = logging.getLogger(__name__)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, FEATURES, ASSETS = (2048, 512, 64) if DEVICE == "cuda" else (1024, 64, 32)


class GaussianHead(nn.Module):
    """Predicts a normal distribution of the returns of all assets."""

    def __init__(self, features, assets, floor=0.5, name="returns"):
        super().__init__()
        self.assets = assets
        self.floor = floor
        self.mean = nn.Linear(features, assets)
        self.factor = nn.Linear(features, assets * assets)
        logger.debug("%s: %d assets", name, assets)

    def forward(self, hidden):
        entries = 0.1 * self.factor(hidden).unflatten(-1, (self.assets, self.assets))
        scales = nn.functional.softplus(entries.diagonal(dim1=-2, dim2=-1)) + self.floor
        triangle = entries.tril(-1) + torch.diag_embed(scales)
        return MultivariateNormal(self.mean(hidden), covariance_matrix=triangle @ triangle.mT, validate_args=False)


class ReturnsModel(nn.Module):
    def __init__(self, features, assets):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, features), nn.Tanh(), nn.Linear(features, features), nn.Tanh())
        self.head = GaussianHead(features, assets)

    def forward(self, signals):
        return self.head(self.body(signals))


def evaluate(model, signals, returns):
    distribution = model(signals)
    likelihood = distribution.log_prob(returns)
    logger.debug("%d rows done", len(returns))
    return likelihood, distribution.mean


def build():
    torch.manual_seed(0)
    model = ReturnsModel(FEATURES, ASSETS).to(DEVICE).eval()
    signals = torch.randn(ROWS, FEATURES).to(DEVICE)
    returns = torch.randn(ROWS, ASSETS).to(DEVICE)

    @torch.no_grad()
    def step():
        return evaluate(model, signals, returns)

    return step
