"""Brings calls from 48 kHz to 44.1 kHz chunk by chunk and measures how loud the speech bands are."""

import logging
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
log = logging.getLogger("calls")


@dataclass
class CallOptions:
    source_rate: int = 48_000
    target_rate: int = 44_100
    zeros: int = 6
    rolloff: float = 0.99
    chunk: int = 960
    chunks: int = 20
    lines: int = 256 if DEVICE == "cuda" else 8
    fft: int = 256
    bands: int = 8


def windowed_sinc(source, target, zeros, rolloff, device):
    """Low-pass filters, one for each output phase, in double precision: (kernel, half width)."""
    base = min(source, target) * rolloff
    width = math.ceil(zeros * source / base)
    taps = torch.arange(-width, width + source, dtype=torch.float64, device=device)[None, None] / source
    phases = torch.arange(0, -target, -1, dtype=torch.float64, device=device)[:, None, None] / target
    t = ((phases + taps) * base).clamp(-zeros, zeros)
    window = torch.cos(t * math.pi / zeros / 2) ** 2
    t = t * math.pi
    sinc = torch.where(t == 0, torch.ones_like(t), torch.sin(t) / t)
    return (sinc * window * (base / source)).float(), width


class Resampler(nn.Module):
    def __init__(self, options):
        super().__init__()
        common = math.gcd(options.source_rate, options.target_rate)
        self.source = options.source_rate // common
        self.target = options.target_rate // common
        kernel, self.width = windowed_sinc(self.source, self.target, options.zeros, options.rolloff, "cpu")
        self.register_buffer("kernel", kernel)

    def forward(self, waves):
        lines, length = waves.shape
        padded = F.pad(waves, (self.width, self.width + self.source))
        phases = F.conv1d(padded[:, None], self.kernel, stride=self.source)
        result = phases.transpose(1, 2).reshape(lines, -1)
        return result[:, : math.ceil(self.target * length / self.source)]


class BandMeter(nn.Module):
    """How loud each band of a chunk is, in decibels."""

    def __init__(self, options):
        super().__init__()
        self.fft = options.fft
        self.bands = options.bands
        self.register_buffer("window", torch.hann_window(options.fft))

    def forward(self, waves):
        frames = waves.unfold(-1, self.fft, self.fft // 2)
        power = torch.fft.rfft(frames * self.window).abs().square().mean(dim=1)
        bands = power[:, 1:].reshape(len(waves), self.bands, -1).mean(dim=-1)
        return 10.0 * torch.log10(bands + 1e-6)


class CallMonitor:
    def __init__(self, options):
        self.options = options
        self.resampler = Resampler(options).to(DEVICE)
        self.meter = BandMeter(options).to(DEVICE)

    @torch.no_grad()
    def listen(self, calls):
        levels = []
        chunk = None
        for chunk in calls.split(self.options.chunk, dim=1):
            chunk = self.resampler(chunk)
            levels.append(self.meter(chunk))
        return torch.stack(levels, dim=1), chunk


def make_calls(options):
    length = options.chunk * options.chunks
    t = torch.arange(length) / options.source_rate
    tones = torch.sin(2 * math.pi * torch.linspace(200, 3000, options.lines)[:, None] * t)
    return (tones + 0.1 * torch.randn(options.lines, length)).to(DEVICE)


def build():
    torch.manual_seed(0)
    options = CallOptions()
    calls = make_calls(options)
    monitor = CallMonitor(options)
    log.info("monitoring %d lines at %d Hz", options.lines, options.target_rate)

    def step():
        return monitor.listen(calls)

    return step
