"""Passage embeddings; the decoder is written as functions over a dictionary of weights."""

from types import SimpleNamespace

import torch
import torch.nn.functional as nnf
from reading_checkpoint import random_checkpoint

if torch.cuda.is_available():
    SETUP = SimpleNamespace(device="cuda", dim=1024, layers=12, n_heads=16, texts=4, tokens=2048, words=16000)
else:
    SETUP = SimpleNamespace(device="cpu", dim=128, layers=6, n_heads=16, texts=1, tokens=256, words=16000)


def causal_alibi(n_heads, tokens, device):
    ratio = 2.0 ** (-8.0 / n_heads)
    per_head = torch.tensor([ratio ** (i + 1) for i in range(n_heads)], device=device)
    index = torch.arange(tokens, device=device)
    offset = index.view(1, -1) - index.view(-1, 1)
    alibi = per_head.view(-1, 1, 1) * offset
    return alibi.masked_fill(offset > 0, -torch.inf).unsqueeze(0)


def attend(weights, prefix, hidden, alibi):
    b, t, d = hidden.shape
    projected = nnf.linear(hidden, weights[prefix + "attention.qkv.weight"])
    query, key, value = (
        part.view(b, t, SETUP.n_heads, d // SETUP.n_heads).transpose(1, 2) for part in projected.chunk(3, dim=-1)
    )
    context = nnf.scaled_dot_product_attention(query, key, value, attn_mask=alibi)
    return nnf.linear(context.transpose(1, 2).reshape(b, t, d), weights[prefix + "attention.out.weight"])


def feed_forward(weights, prefix, hidden):
    inner = torch.relu(nnf.linear(hidden, weights[prefix + "up.weight"]))
    return nnf.linear(inner, weights[prefix + "down.weight"])


def embed_texts(weights, ids):
    alibi = causal_alibi(SETUP.n_heads, ids.shape[1], ids.device)
    hidden = nnf.embedding(ids, weights["embed.weight"])
    shape = (SETUP.dim,)
    for layer in range(SETUP.layers):
        prefix = f"blocks.{layer}."
        hidden = hidden + attend(weights, prefix, nnf.layer_norm(hidden, shape), alibi)
        hidden = hidden + feed_forward(weights, prefix, nnf.layer_norm(hidden, shape))
    pooled = hidden.mean(dim=1)
    return nnf.normalize(pooled, dim=-1)


def build():
    loaded = random_checkpoint(SETUP.dim, SETUP.layers, SETUP.words)
    weights = {name: tensor.to(SETUP.device) for name, tensor in loaded.items()}
    torch.manual_seed(0)
    ids = torch.randint(SETUP.words, (SETUP.texts, SETUP.tokens)).to(SETUP.device)

    def step():
        with torch.inference_mode():
            return embed_texts(weights, ids)

    return step
