"""Scores single-nucleotide variants with an autoregressive model of DNA."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"

BASES = 5
CONTEXT = 4096 if LARGE else 1536
DIM = 512 if LARGE else 64
HEADS = 8 if LARGE else 2
LAYERS = 6 if LARGE else 2
VARIANTS = 4 if LARGE else 1


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the genome model; `window` limits how far a base can look back."""

    dim: int = DIM
    heads: int = HEADS
    layers: int = LAYERS
    context: int = CONTEXT
    window: int | None = None


def visibility(context: int, window: int | None) -> torch.Tensor:
    """True where the base of a row may look at the base of a column."""
    index = torch.arange(context)
    distance = index[:, None] - index[None, :]
    visible = distance >= 0
    if window is not None:
        visible &= distance < window
    return visible


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GenomeModel(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.embed = nn.Embedding(BASES, config.dim)
        self.position = nn.Embedding(config.context, config.dim)
        self.blocks = nn.ModuleList([Block(config.dim, config.heads) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, BASES, bias=False)
        self.register_buffer("visible", visibility(config.context, config.window), persistent=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embed(tokens) + self.position.weight[:length]
        mask = self.visible[:length, :length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def log_likelihood(model, tokens):
    logp = model(tokens[:, :-1]).log_softmax(-1)
    picked = logp.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
    return picked.sum(-1)


def mutate(reference, positions, alternates):
    tokens = reference.repeat(len(positions), 1)
    rows = torch.arange(len(positions), device=tokens.device)
    tokens[rows, positions] = alternates
    return tokens


def build():
    torch.manual_seed(0)
    model = GenomeModel(ModelConfig())
    reference = torch.randint(0, 4, (1, CONTEXT))
    positions = torch.randint(CONTEXT // 4, 3 * CONTEXT // 4, (VARIANTS,))
    alternates = (reference[0, positions] + 1) % 4
    model = model.to(DEVICE).eval()
    reference = reference.to(DEVICE)
    positions = positions.to(DEVICE)
    alternates = alternates.to(DEVICE)

    @torch.no_grad()
    def step():
        variants = mutate(reference, positions, alternates)
        scores = log_likelihood(model, torch.cat([reference, variants]))
        return scores, scores / CONTEXT

    return step
