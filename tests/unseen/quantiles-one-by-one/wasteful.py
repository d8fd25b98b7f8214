"""Probabilistic demand forecast: sample paths from a neural network, summed up and reported as quantiles."""

import torch
from demand import HORIZON, LEVELS, history, matrices, noise
from torch import nn


class Forecaster(nn.Module):
    """History in, mean and spread of each coming day out."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(weight, requires_grad=False) for weight in weights)

    def forward(self, past):
        hidden = past.flatten(1)
        for weight in self.weights[:-1]:
            hidden = nn.functional.gelu(hidden @ weight)
        mean, spread = (hidden @ self.weights[-1]).split(HORIZON, dim=-1)
        return mean, nn.functional.softplus(spread)


class QuantileReport:
    def __init__(self, levels):
        self.levels = levels

    def summarise(self, paths):
        columns = {}
        for level in self.levels:
            columns[f"p{100 * level:02.0f}"] = torch.quantile(paths, level, dim=0)
        return columns


class Pipeline:
    def __init__(self, forecaster, report, draws):
        self.forecaster = forecaster.eval()
        self.report = report
        self.draws = draws

    def run(self, past):
        with torch.inference_mode():
            mean, spread = self.forecaster(past)
            paths = (mean + spread * self.draws).cumsum(dim=-1)
            return self.report.summarise(paths)


def build():
    torch.manual_seed(0)
    past, draws, weights = history(), noise(), matrices()
    pipeline = Pipeline(Forecaster(weights), QuantileReport(LEVELS), draws)

    def step():
        return pipeline.run(past)

    return step
