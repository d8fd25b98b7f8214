"""A GPT-2 trunk in a page of code, filled with the weights of the published class."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2Model

GPU = torch.cuda.is_available()


@dataclass
class Sizes:
    words: int = 2000
    context: int = 512
    dim: int = 128 if GPU else 64
    depth: int = 12 if GPU else 4
    heads: int = 4


class Affine(nn.Module):
    """Multiplies by a matrix that is stored with its inputs first, as GPT-2 has them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return torch.addmm(self.bias, rows, self.weight).view(*x.shape[:-1], -1)


class SelfAttention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes.heads
        self.c_attn = Affine(sizes.dim, 3 * sizes.dim)
        self.c_proj = Affine(sizes.dim, sizes.dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class FeedForward(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.c_fc = Affine(sizes.dim, 4 * sizes.dim)
        self.c_proj = Affine(4 * sizes.dim, sizes.dim)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.ln_1 = nn.LayerNorm(sizes.dim)
        self.attn = SelfAttention(sizes)
        self.ln_2 = nn.LayerNorm(sizes.dim)
        self.mlp = FeedForward(sizes)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Trunk(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.wte = nn.Embedding(sizes.words, sizes.dim)
        self.wpe = nn.Embedding(sizes.context, sizes.dim)
        self.h = nn.Sequential(*(Layer(sizes) for _ in range(sizes.depth)))
        self.ln_f = nn.LayerNorm(sizes.dim)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.ln_f(self.h(self.wte(ids) + self.wpe(places)))


def published_weights(sizes):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=sizes.words,
        n_positions=sizes.context,
        n_embd=sizes.dim,
        n_layer=sizes.depth,
        n_head=sizes.heads,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2Model(config).state_dict()


def build():
    sizes = Sizes()
    trunk = Trunk(sizes)
    trunk.load_state_dict(published_weights(sizes))
    trunk.eval().requires_grad_(requires_grad=False)
    device = torch.device("cuda" if GPU else "cpu")
    trunk.to(device)
    shape = (64, 512) if GPU else (16, 64)
    ids = torch.randint(sizes.words, shape, generator=torch.Generator().manual_seed(1)).to(device)

    def step():
        with torch.no_grad():
            return trunk(ids)

    return step
