"""Batch inference of a small S4D network: long convolutions in the frequency domain, averaged over time."""

from dataclasses import dataclass

import torch
from sensor_model import LENGTH, layer_parameters, recordings
from torch.nn import functional

PADDED = 2 * LENGTH


@dataclass
class Block:
    """What a layer needs at inference."""

    transfer: torch.Tensor
    d: torch.Tensor
    w: torch.Tensor

    @classmethod
    def from_checkpoint(cls, state):
        dt_a = state["a"] * torch.exp(state["log_dt"])[:, None]
        b = state["c"] * torch.expm1(dt_a) / state["a"]
        steps = torch.arange(LENGTH, device=dt_a.device)
        impulse = (b[..., None] * torch.exp(dt_a[..., None] * steps)).sum(1).real * 2
        return cls(torch.fft.rfft(impulse, PADDED), state["d"][:, None], state["mix"])

    def __call__(self, x):
        u = x.mT
        y = torch.fft.irfft(torch.fft.rfft(u, PADDED) * self.transfer, PADDED)
        y = functional.gelu(y[:, :, :LENGTH] + self.d * u)
        return x + functional.linear(y.mT, self.w)


@torch.no_grad()
def infer(blocks, x):
    for block in blocks:
        x = block(x)
    return torch.mean(x, 1)


def build():
    torch.manual_seed(0)
    x = recordings()
    blocks = [Block.from_checkpoint(state) for state in layer_parameters()]
    return lambda: infer(blocks, x)
