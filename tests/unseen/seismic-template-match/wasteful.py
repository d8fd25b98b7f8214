"""Matched filter over a seismic network: correlate the records with known events."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RATE = 100
SECONDS = 2003 if DEVICE == "cuda" else 200
STATIONS = 24 if DEVICE == "cuda" else 6
EVENTS = 16 if DEVICE == "cuda" else 4
TEMPLATE = 4 * RATE
SAMPLES = SECONDS * RATE


class Bandpass(nn.Module):
    def __init__(self, taps):
        super().__init__()
        self.filter = nn.Conv1d(1, 1, taps.numel(), padding="same", bias=False)
        self.filter.weight.data.copy_(taps.view(1, 1, -1))

    def forward(self, record):
        centred = record - record.mean(dim=-1, keepdim=True)
        return self.filter(centred.unsqueeze(1)).squeeze(1)


class MatchedFilter(nn.Module):
    """Normalised cross-correlation of every template with every station."""

    def __init__(self, templates):
        super().__init__()
        unit = templates - templates.mean(dim=-1, keepdim=True)
        unit = unit / unit.norm(dim=-1, keepdim=True)
        self.width = unit.shape[-1]
        self.nfft = SAMPLES + self.width - 1
        spectra = torch.fft.rfft(unit, n=self.nfft).conj()
        self.register_buffer("spectra", torch.view_as_real(spectra.resolve_conj()))

    def energy(self, record):
        total = record.double().square().cumsum(dim=-1)
        total = nn.functional.pad(total, (1, 0))
        window = total[..., self.width :] - total[..., : -self.width]
        return window.clamp(min=1e-12).sqrt().float()

    def forward(self, record):
        spectrum = torch.fft.rfft(record, n=self.nfft)
        product = spectrum * torch.view_as_complex(self.spectra)
        lags = SAMPLES - self.width + 1
        correlation = torch.fft.irfft(product, n=self.nfft)[..., :lags]
        return correlation / self.energy(record)


class Detector(nn.Module):
    def __init__(self, taps, templates, picker):
        super().__init__()
        self.bandpass = Bandpass(taps)
        self.matched = MatchedFilter(templates)
        self.picker = nn.Conv1d(EVENTS, 24, 15)
        self.picker.weight.data.copy_(picker)
        self.picker.bias.data.zero_()

    def forward(self, record):
        filtered = self.bandpass(record)
        stack = self.matched(filtered).mean(dim=1)
        peaks = stack.amax(dim=-1)
        level = stack.std(dim=-1)
        picks = torch.relu(self.picker(stack.unsqueeze(0)))
        return stack, peaks, level, picks.mean(dim=-1)


def build():
    torch.manual_seed(0)
    templates = torch.randn(EVENTS, STATIONS, TEMPLATE)
    record = torch.randn(STATIONS, SAMPLES)
    taps = torch.randn(41) / 41
    picker = torch.randn(24, EVENTS, 15) / 10
    for event in range(EVENTS):
        start = (event + 1) * SAMPLES // (EVENTS + 2)
        record[:, start : start + TEMPLATE] += templates[event]
    detector = Detector(taps, templates, picker).to(DEVICE).eval()
    record = record.to(DEVICE)

    def step():
        with torch.no_grad():
            return detector(record)

    return step
