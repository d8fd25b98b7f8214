"""Training of a small mixer of time series; the log names the operations per second that were reached."""

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class MixerConfig:
    series: int = 64 if LARGE else 32
    window: int = 512 if LARGE else 192
    width: int = 512 if LARGE else 256
    depth: int = 8 if LARGE else 4
    batch: int = 32 if LARGE else 16
    horizon: int = 48
    lr: float = 1e-2


class MixerBlock(nn.Module):
    """Mixes over time, then over the series."""

    def __init__(self, config):
        super().__init__()
        self.time_norm = nn.LayerNorm(config.window)
        self.time_up = nn.Linear(config.window, config.width)
        self.time_down = nn.Linear(config.width, config.window)
        self.series_norm = nn.LayerNorm(config.series)
        self.series_up = nn.Linear(config.series, config.series)
        self.series_down = nn.Linear(config.series, config.series)

    def forward(self, values):
        values = values + self.time_down(functional.gelu(self.time_up(self.time_norm(values))))
        mixed = self.series_norm(values.transpose(1, 2))
        return values + self.series_down(functional.gelu(self.series_up(mixed))).transpose(1, 2)


class Forecaster(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = nn.ModuleList(MixerBlock(config) for _ in range(config.depth))
        self.head = nn.Linear(config.window, config.horizon)

    def forward(self, values):
        for block in self.blocks:
            values = block(values)
        return self.head(values)


def count_flops(model, history, future):
    """Return the operations of one forward and one backward pass."""
    with FlopCounterMode(display=False) as counter:
        functional.mse_loss(model(history), future).backward()
    model.zero_grad()
    return counter.get_total_flops()


def build():
    torch.manual_seed(0)
    config = MixerConfig()
    model = Forecaster(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    history = torch.randn(config.batch, config.series, config.window).to(DEVICE)
    future = torch.randn(config.batch, config.series, config.horizon).to(DEVICE)
    flops = count_flops(model, history, future)
    log = {}

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.mse_loss(model(history), future)
        loss.backward()
        optimizer.step()
        log["flops_per_second"] = flops / (time.perf_counter() - begin)
        return {"loss": loss.detach(), "flops": flops}

    return step
