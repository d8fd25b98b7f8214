"""Warn of failures from sensor histories: a recurrent network reads the signals, each time step gets a risk."""

from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, STEPS = (256, 512) if DEVICE == "cuda" else (32, 96)


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of the network; the risks must not depend on what comes later."""

    sensors: int = 128 if DEVICE == "cuda" else 24
    hidden: int = 768 if DEVICE == "cuda" else 128
    horizons: int = 4
    bidirectional: bool = False
    version: str = "pumps-4"


class RiskNetwork(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.scale = nn.LayerNorm(config.sensors)
        self.head = nn.Sequential(nn.Linear(config.hidden, 64), nn.ReLU(), nn.Linear(64, config.horizons))
        self.reader = nn.LSTM(
            config.sensors,
            config.hidden,
            batch_first=True,
            bidirectional=config.bidirectional,
        )

    def forward(self, signals):
        read, _ = self.reader(self.scale(signals))
        past = read[..., : self.config.hidden]
        return self.head(past).sigmoid()


def build():
    torch.manual_seed(0)
    config = NetworkConfig()
    signals = torch.randn(BATCH, STEPS, config.sensors).to(DEVICE)
    network = RiskNetwork(config).to(DEVICE).eval()

    @torch.no_grad()
    def step():
        risks = network(signals)
        return risks, risks.amax(dim=1)

    return step
