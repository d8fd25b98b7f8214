"""Training of a small mixer of time series; the log names the operations per second that were reached."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
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


@dataclass
class Throughput:
    """What the progress bar shows."""

    steps: int = 0
    flops_per_second: float = 0.0
    history: list[float] = field(default_factory=list)
    keep_history: bool = False

    def update(self, flops: int, seconds: float) -> None:
        self.steps += 1
        self.flops_per_second = flops / seconds
        if self.keep_history:
            self.history.append(self.flops_per_second)


class MixerBlock(nn.Module):
    """Mixes over time, then over the series."""

    def __init__(self, config: MixerConfig):
        super().__init__()
        self.time_norm = nn.LayerNorm(config.window)
        self.time_up = nn.Linear(config.window, config.width)
        self.time_down = nn.Linear(config.width, config.window)
        self.series_norm = nn.LayerNorm(config.series)
        self.series_up = nn.Linear(config.series, config.series)
        self.series_down = nn.Linear(config.series, config.series)

    def forward(self, values: Tensor) -> Tensor:
        values = values + self.time_down(functional.gelu(self.time_up(self.time_norm(values))))
        mixed = self.series_norm(values.transpose(1, 2))
        return values + self.series_down(functional.gelu(self.series_up(mixed))).transpose(1, 2)


class Forecaster(nn.Module):
    def __init__(self, config: MixerConfig):
        super().__init__()
        self.blocks = nn.ModuleList(MixerBlock(config) for _ in range(config.depth))
        self.head = nn.Linear(config.window, config.horizon)

    def forward(self, values: Tensor) -> Tensor:
        for block in self.blocks:
            values = block(values)
        return self.head(values)


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, history: Tensor, future: Tensor):
    """Take one step, and return the loss and the operations of its forward and backward pass."""
    optimizer.zero_grad()
    with FlopCounterMode(display=False) as counter:
        loss = functional.mse_loss(model(history), future)
        loss.backward()
    optimizer.step()
    return loss.detach(), counter.get_total_flops()


def build():
    torch.manual_seed(0)
    config = MixerConfig()
    model = Forecaster(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    history = torch.randn(config.batch, config.series, config.window).to(DEVICE)
    future = torch.randn(config.batch, config.series, config.horizon).to(DEVICE)
    throughput = Throughput()

    def step():
        begin = time.perf_counter()
        loss, flops = training_step(model, optimizer, history, future)
        throughput.update(flops, time.perf_counter() - begin)
        return {"loss": loss, "flops": flops}

    return step
