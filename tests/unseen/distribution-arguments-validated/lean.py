"""Evaluate recorded orders of a strategy game under a policy: each order has many parts, each part a few choices."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Categorical

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class PolicyConfig:
    observations: int = 512 if DEVICE == "cuda" else 64
    hidden: int = 1024 if DEVICE == "cuda" else 64
    parts: int = 64
    choices: int = 12
    validate_args: bool = False
    title: str = "orders-b"


class OrderPolicy(nn.Module):
    """Independent categorical distributions of the parts of an order."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.body = nn.Sequential(nn.Linear(config.observations, config.hidden), nn.Tanh())
        self.head = nn.Linear(config.hidden, config.parts * config.choices)

    def distributions(self, observations):
        logits = self.head(self.body(observations)).split(self.config.choices, dim=-1)
        return [Categorical(logits=part, validate_args=self.config.validate_args) for part in logits]

    def evaluate(self, observations, orders):
        parts = self.distributions(observations)
        log_probability = sum(part.log_prob(order) for part, order in zip(parts, orders.unbind(-1), strict=True))
        entropy = sum(part.entropy() for part in parts)
        return log_probability, entropy


def build():
    torch.manual_seed(0)
    config = PolicyConfig()
    policy = OrderPolicy(config).to(DEVICE).eval()
    batch = 1024 if DEVICE == "cuda" else 64
    observations = torch.randn(batch, config.observations).to(DEVICE)
    orders = torch.randint(config.choices, (batch, config.parts)).to(DEVICE)

    @torch.no_grad()
    def step():
        log_probability, entropy = policy.evaluate(observations, orders)
        return {"log_probability": log_probability, "entropy": entropy}

    return step
