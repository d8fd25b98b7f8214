"""Embeds passages with a causal decoder that knows positions by linear biases (ALiBi)."""

import torch
from reading_checkpoint import random_checkpoint
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH, HEADS = (1024, 12, 16) if DEVICE == "cuda" else (128, 6, 16)
BATCH, LENGTH = (4, 2048) if DEVICE == "cuda" else (1, 256)
VOCABULARY = 16000


class AlibiAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        slopes = torch.tensor([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])
        self.register_buffer("slopes", slopes, persistent=False)

    def position_bias(self, length):
        positions = torch.arange(length, device=self.slopes.device)
        distance = positions[None, :] - positions[:, None]
        bias = self.slopes[:, None, None] * distance
        return bias.masked_fill(distance > 0, float("-inf"))[None]

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.position_bias(length))
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = AlibiAttention(width, heads)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(functional.layer_norm(x, x.shape[-1:]))
        return x + self.down(functional.relu(self.up(functional.layer_norm(x, x.shape[-1:]))))


class PassageReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(DEPTH))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.normalize(x.mean(dim=1), dim=-1)


def build():
    reader = PassageReader().eval()
    reader.load_state_dict(random_checkpoint(WIDTH, DEPTH, VOCABULARY))
    reader.to(DEVICE)
    torch.manual_seed(0)
    passages = torch.randint(VOCABULARY, (BATCH, LENGTH)).to(DEVICE)

    @torch.inference_mode()
    def step():
        return reader(passages)

    return step
