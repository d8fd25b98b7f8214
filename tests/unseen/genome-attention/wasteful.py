"""Finds regulatory regions in DNA with a small network of efficient (linear) attention."""

import logging
from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
log = logging.getLogger("regions")


@dataclass
class RegionOptions:
    letters: int = 5
    length: int = 4096 if DEVICE == "cuda" else 640
    batch: int = 8 if DEVICE == "cuda" else 2
    width: int = 256 if DEVICE == "cuda" else 64
    heads: int = 4
    layers: int = 2
    marks: int = 3


class EfficientAttention(nn.Module):
    """Attention with separately normalised queries and keys; every position sees the whole sequence."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, self.head_width).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(part) for part in self.project(x).chunk(3, dim=-1))
        q = q.softmax(dim=-1)
        k = k.softmax(dim=-2)
        weights = q @ k.transpose(-2, -1)
        mixed = weights @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_mix = nn.LayerNorm(width)
        self.mix = EfficientAttention(width, heads)
        self.norm_motif = nn.LayerNorm(width)
        self.motif = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.feed = nn.Linear(width, width)

    def forward(self, x):
        x = x + self.mix(self.norm_mix(x))
        y = self.motif(self.norm_motif(x).transpose(1, 2)).transpose(1, 2)
        return x + self.feed(torch.relu(y))


class RegionFinder(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.letters = nn.Embedding(options.letters, options.width)
        self.position = nn.Parameter(0.02 * torch.randn(options.length, options.width))
        self.layers = nn.ModuleList(Layer(options.width, options.heads) for _ in range(options.layers))
        self.marks = nn.Linear(options.width, options.marks)

    def forward(self, dna):
        x = self.letters(dna) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.marks(x)


def reverse_complement(dna):
    """A=0 C=1 G=2 T=3, unknown=4."""
    table = torch.tensor([3, 2, 1, 0, 4], device=dna.device)
    return table[dna].flip(1)


def call_regions(scores, threshold=0.5):
    return torch.sigmoid(scores) > threshold


def build():
    torch.manual_seed(0)
    options = RegionOptions()
    model = RegionFinder(options).to(DEVICE).eval()
    dna = torch.randint(0, options.letters, (options.batch, options.length)).to(DEVICE)
    log.info("%d sequences of %d letters", options.batch, options.length)

    def step():
        with torch.no_grad():
            forward = model(dna)
            backward = model(reverse_complement(dna)).flip(1)
            scores = 0.5 * (forward + backward)
        return scores, call_regions(scores).float().mean(dim=1).round(decimals=1)

    return step
