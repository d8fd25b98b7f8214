"""Multiple-choice scoring with a Llama written out by hand; weights come from the class of transformers."""

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

ON_GPU = torch.cuda.is_available()
SHAPE = {
    "vocab_size": 32000 if ON_GPU else 8000,
    "hidden_size": 512 if ON_GPU else 128,
    "intermediate_size": 1024 if ON_GPU else 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
}


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, rotary):
        q, k = (rotate(self.split(project(x)), rotary) for project in (self.q_proj, self.k_proj))
        mixed = functional.scaled_dot_product_attention(q, k, self.split(self.v_proj(x)), is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate_proj = nn.Linear(dim, inner, bias=False)
        self.up_proj = nn.Linear(dim, inner, bias=False)
        self.down_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, inner, heads):
        super().__init__()
        self.self_attn = Attention(dim, heads)
        self.mlp = GatedMLP(dim, inner)
        self.input_layernorm = Norm(dim)
        self.post_attention_layernorm = Norm(dim)

    def forward(self, x, rotary):
        x = x + self.self_attn(self.input_layernorm(x), rotary)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        dim, inner, heads = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"]
        self.head_dim = dim // heads
        self.embed_tokens = nn.Embedding(shape["vocab_size"], dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, inner, heads) for _ in range(shape["num_hidden_layers"]))
        self.norm = Norm(dim)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        rotary = rotary_tables(ids.shape[1], self.head_dim, ids.device)
        for layer in self.layers:
            x = layer(x, rotary)
        return self.norm(x)


class NextToken(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.model = Decoder(shape)
        self.lm_head = nn.Linear(shape["hidden_size"], shape["vocab_size"], bias=False)

    def forward(self, ids):
        return self.lm_head(self.model(ids)[:, -1])


def rotary_tables(length, dim, device):
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device=device).float() / dim)
    angles = torch.outer(torch.arange(length, device=device).float(), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, rotary):
    cosine, sine = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def build():
    device = "cuda" if ON_GPU else "cpu"
    torch.manual_seed(0)
    donor = LlamaForCausalLM(LlamaConfig(**SHAPE, bos_token_id=None, eos_token_id=None))
    ranker = NextToken(SHAPE)
    ranker.load_state_dict(donor.state_dict())
    ranker = ranker.to(device).eval()
    source = torch.Generator().manual_seed(5)
    questions = torch.randint(SHAPE["vocab_size"], (16, 512) if ON_GPU else (6, 96), generator=source).to(device)
    options = torch.randint(SHAPE["vocab_size"], (4,), generator=source).to(device)

    def step():
        with torch.no_grad():
            return torch.log_softmax(ranker(questions), dim=-1)[:, options]

    return step
