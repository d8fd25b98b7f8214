"""Draws images of given kinds, as latent codes, from noise: a transformer predicts the noise, DDIM takes it away."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Embedding, LayerNorm, Linear, Module, Sequential
from torch.nn.functional import scaled_dot_product_attention

KINDS = 10
SIZES = {"width": 1024, "layers": 8, "images": 64} if torch.cuda.is_available() else {}
PLACE = "cuda" if SIZES else "cpu"


class Attention(Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm = LayerNorm(width)
        self.inputs = Linear(width, 3 * width)
        self.outputs = Linear(width, width)
        self.heads = heads

    def forward(self, codes: Tensor) -> Tensor:
        images, places, width = codes.shape
        parts = self.inputs(self.norm(codes)).split(width, dim=2)
        parts = [part.view(images, places, self.heads, width // self.heads).transpose(1, 2) for part in parts]
        mixed = scaled_dot_product_attention(*parts)
        return codes + self.outputs(mixed.transpose(1, 2).reshape(images, places, width))


class FeedForward(Module):
    def __init__(self, width: int):
        super().__init__()
        self.layers = Sequential(LayerNorm(width), Linear(width, 4 * width), torch.nn.ReLU(), Linear(4 * width, width))

    def forward(self, codes: Tensor) -> Tensor:
        return codes + self.layers(codes)


class NoisePredictor(Module):
    def __init__(self, width: int = 128, layers: int = 2, channels: int = 16):
        super().__init__()
        self.enter = Linear(channels, width)
        self.kind = Embedding(KINDS + 1, width)
        self.level = Linear(1, width)
        self.body = Sequential()
        for _ in range(layers):
            self.body.append(Attention(width, 8))
            self.body.append(FeedForward(width))
        self.leave = Linear(width, channels)

    def forward(self, codes: Tensor, level: Tensor, kinds: Tensor) -> Tensor:
        about = self.kind(kinds) + self.level(level)
        return self.leave(self.body(self.enter(codes) + about.unsqueeze(1)))


def predicted(network: NoisePredictor, codes: Tensor, level: Tensor, kinds: Tensor, guidance: float) -> Tensor:
    wanted = network(codes, level, kinds)
    if guidance == 1.0:
        return wanted
    anything = network(codes, level, torch.full_like(kinds, KINDS))
    return anything.lerp(wanted, guidance)


def draw(network: NoisePredictor, codes: Tensor, kinds: Tensor, steps: int = 4, guidance: float = 1.0) -> Tensor:
    signal = torch.linspace(0.05, 0.999, steps + 1).tolist()
    for now, after in pairwise(signal):
        level = codes.new_full((len(codes), 1), 1.0 - now)
        noise = predicted(network, codes, level, kinds, guidance)
        image = (codes - (1 - now) ** 0.5 * noise) / now**0.5
        codes = after**0.5 * image + (1 - after) ** 0.5 * noise
    return codes


def build():
    torch.manual_seed(0)
    images = SIZES.pop("images", 6)
    network = NoisePredictor(**SIZES).to(PLACE).eval()
    start = torch.randn(images, 64, 16).to(PLACE)
    kinds = torch.randint(KINDS, (images,)).to(PLACE)

    def step():
        with torch.no_grad():
            return draw(network, start, kinds)

    return step
