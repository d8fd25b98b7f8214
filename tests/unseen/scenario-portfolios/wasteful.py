import math

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
N = 512 if ON_GPU else 160
N_FACTORS = 24 if ON_GPU else 12
T = 8000 if ON_GPU else 5000
S = 512 if ON_GPU else 48


class CovarianceModel(nn.Module):
    """Exponentially weighted covariance, shrunk towards a multiple of the identity."""

    def __init__(self, half_life=250.0, shrink=0.05):
        super().__init__()
        lam = torch.exp(-math.log(2.0) / half_life * torch.arange(T).flip(0))
        self.register_buffer("w", (lam / lam.sum()).unsqueeze(1))
        self.shrink = shrink

    def forward(self, R):
        X = (R - (self.w * R).sum(dim=0)) * self.w.sqrt()
        sigma = torch.mm(X.t(), X)
        level = self.shrink * torch.trace(sigma) / N
        sigma.diagonal().add_(level)
        return sigma


class MeanVariance(nn.Module):
    """Turns views on expected returns into fully levered long-short portfolios."""

    def forward(self, sigma, mu):
        system = sigma.expand(mu.size(0), N, N)
        w = torch.linalg.solve(system, mu)
        return torch.nn.functional.normalize(w, p=1, dim=1)


class Backtest(nn.Module):
    def forward(self, R, w):
        curve = torch.cumsum(torch.einsum("ta,sa->ts", R, w), dim=0)
        peak, _ = torch.cummax(curve, dim=0)
        return torch.max(peak - curve, dim=0).values


class Study(nn.Module):
    def __init__(self, R, mu):
        super().__init__()
        self.register_buffer("R", R)
        self.register_buffer("mu", mu)
        self.covariance = CovarianceModel()
        self.optimizer = MeanVariance()
        self.backtest = Backtest()

    def forward(self):
        sigma = self.covariance(self.R)
        w = self.optimizer(sigma, self.mu)
        variance = torch.einsum("sa,sa->s", torch.mm(w, sigma), w)
        drawdown = self.backtest(self.R, w)
        return torch.einsum("sa,sa->s", w, self.mu), torch.sqrt(variance), drawdown


def make_data():
    beta = torch.randn(N, N_FACTORS)
    f = torch.randn(T, N_FACTORS).mul(0.01)
    eps = torch.randn(T, N).mul(0.02)
    mu = torch.randn(S, N).mul(0.02).add(0.05)
    return torch.addmm(eps, f, beta.t()), mu


def build():
    torch.manual_seed(0)
    study = Study(*make_data()).to(DEVICE)
    study.requires_grad_(False)

    def step():
        with torch.inference_mode():
            return study()

    return step
