"""Regime-switching model of daily asset returns: likelihood, posterior and value at risk."""

import torch
from torch import nn
from torch.distributions import MultivariateNormal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ASSETS = 1024 if DEVICE == "cuda" else 240
REGIMES = 16 if DEVICE == "cuda" else 8
DAYS = 60
FACTORS = 12
MACRO = 32
SCENARIOS = 128


def factor_covariance(loadings, noise):
    """Covariance of a factor model: B B' + diag(noise)."""
    common = loadings @ loadings.mT
    return common + torch.diag_embed(noise)


def make_covariances():
    loadings = 0.02 * torch.randn(REGIMES, ASSETS, FACTORS)
    noise = 1e-4 + 2e-4 * torch.rand(REGIMES, ASSETS)
    return factor_covariance(loadings, noise)


class DriftNet(nn.Module):
    """Expected return of each asset in each regime, from macro data."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(MACRO, 64)
        self.out = nn.Linear(64, REGIMES * ASSETS)

    def forward(self, macro):
        h = torch.tanh(self.hidden(macro))
        return 0.01 * self.out(h).view(REGIMES, ASSETS)


class RegimeModel(nn.Module):
    def __init__(self, covariances):
        super().__init__()
        self.drift = DriftNet()
        self.log_prior = nn.Parameter(torch.zeros(REGIMES))
        self.register_buffer("factor", torch.linalg.cholesky(covariances))

    def distribution(self, macro):
        loc = self.drift(macro)
        return MultivariateNormal(loc, scale_tril=self.factor)

    def forward(self, macro, returns):
        dist = self.distribution(macro)
        prior = torch.log_softmax(self.log_prior, dim=0)
        joint = dist.log_prob(returns.unsqueeze(1)) + prior
        evidence = torch.logsumexp(joint, dim=1)
        posterior = torch.exp(joint - evidence.unsqueeze(1))
        return evidence, posterior, dist


def scenario_losses(dist, shocks, weights):
    """Portfolio loss of each scenario under each regime."""
    moves = dist.loc.unsqueeze(-1) + dist.scale_tril @ shocks
    return -(weights @ moves)


def value_at_risk(losses, level):
    return torch.quantile(losses, level, dim=-1)


def make_data():
    macro = torch.randn(MACRO)
    returns = 0.02 * torch.randn(DAYS, ASSETS)
    shocks = torch.randn(ASSETS, SCENARIOS)
    weights = torch.softmax(torch.randn(ASSETS), dim=0)
    return macro, returns, shocks, weights


def build():
    torch.manual_seed(0)
    model = RegimeModel(make_covariances())
    macro, returns, shocks, weights = make_data()
    model = model.to(DEVICE).eval()
    macro, returns = macro.to(DEVICE), returns.to(DEVICE)
    shocks, weights = shocks.to(DEVICE), weights.to(DEVICE)

    @torch.inference_mode()
    def step():
        evidence, posterior, dist = model(macro, returns)
        losses = scenario_losses(dist, shocks, weights)
        risk = value_at_risk(losses, 0.95)
        return evidence, posterior, losses, risk

    return step
