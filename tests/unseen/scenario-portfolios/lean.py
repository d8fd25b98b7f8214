"""Mean-variance portfolios for many return scenarios, with their historical risk."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cuda":
    ASSETS, FACTORS, DAYS, SCENARIOS = 512, 24, 8000, 512
else:
    ASSETS, FACTORS, DAYS, SCENARIOS = 160, 12, 5000, 48
HALF_LIFE = 250.0
RIDGE = 0.05


def simulate_market():
    loadings = torch.randn(ASSETS, FACTORS)
    factor_returns = 0.01 * torch.randn(DAYS, FACTORS)
    noise = 0.02 * torch.randn(DAYS, ASSETS)
    views = 0.05 + 0.02 * torch.randn(SCENARIOS, ASSETS)
    return factor_returns @ loadings.T + noise, views


def weighted_covariance(returns, decay):
    centred = returns - decay @ returns
    return centred.T @ (centred * decay[:, None])


def optimal_weights(covariance, views):
    raw = torch.linalg.solve(covariance, views.T).T
    return raw / raw.abs().sum(1, keepdim=True)


def worst_drawdown(pnl):
    wealth = pnl.cumsum(0)
    return (wealth.cummax(0).values - wealth).amax(0)


def build():
    torch.manual_seed(0)
    returns, views = simulate_market()
    returns, views = returns.to(DEVICE), views.to(DEVICE)
    age = torch.arange(DAYS - 1, -1, -1, device=DEVICE)
    decay = 0.5 ** (age / HALF_LIFE)
    decay = decay / decay.sum()
    ridge = RIDGE * torch.eye(ASSETS, device=DEVICE)

    @torch.no_grad()
    def step():
        covariance = weighted_covariance(returns, decay)
        covariance = covariance + ridge * covariance.diagonal().mean()
        weights = optimal_weights(covariance, views)
        risk = ((weights @ covariance) * weights).sum(1).sqrt()
        pnl = returns @ weights.T
        expected = (weights * views).sum(1)
        return expected, risk, worst_drawdown(pnl)

    return step
