"""A BERT encoder by Hugging Face and by `torch.nn.TransformerEncoder`, with the same weights.

joulediff diff benchmarks/systems/bert.py:hf benchmarks/systems/bert.py:encoder
joulediff diff benchmarks/systems/bert.py:hf benchmarks/systems/bert.py:encoder_fast

`encoder_fast` takes PyTorch's fast path for inference: one operator for a whole layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from system_sizes import DEVICE, choose, draw_tokens, look_trained, make_step, place
from torch import nn
from transformers import BertConfig, BertModel

BATCH, LENGTH = choose(tiny=(2, 24), small=(2, 64), real=(32, 256))
WIDTH, LAYERS, HEADS = choose(tiny=(64, 3, 4), small=(256, 12, 8), real=(768, 12, 12))
WORDS = choose(tiny=320, small=320, real=30522)


def _make_hf() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        vocab_size=WORDS,
        initializer_range=0.02 * (768 / WIDTH) ** 0.5,
    )
    return place(look_trained(BertModel(config, add_pooling_layer=False)))


def hf() -> Callable[[], object]:
    model, ids = _make_hf(), draw_tokens(BATCH, LENGTH, WORDS)
    return make_step(lambda: model(ids).last_hidden_state)


def encoder() -> Callable[[], object]:
    return _build_encoder(fast=False)


def encoder_fast() -> Callable[[], object]:
    return _build_encoder(fast=True)


def _build_encoder(*, fast: bool) -> Callable[[], object]:
    torch.backends.mha.set_fastpath_enabled(fast)
    model, ids = Encoder(_make_hf()).eval(), draw_tokens(BATCH, LENGTH, WORDS)
    return make_step(lambda: model(ids))


class Encoder(nn.Module):
    """An encoder whose layers PyTorch provides."""

    def __init__(self, source: BertModel) -> None:
        super().__init__()
        parts, config = source.embeddings, source.config
        self.words, self.places, self.norm = parts.word_embeddings, parts.position_embeddings, parts.LayerNorm
        self.register_buffer("kind", parts.token_type_embeddings.weight.detach()[0].clone())
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            config.num_attention_heads,
            config.intermediate_size,
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=config.layer_norm_eps,
            batch_first=True,
        )
        self.layers = place(nn.TransformerEncoder(layer, config.num_hidden_layers, enable_nested_tensor=False))
        for made, each in zip(self.layers.layers, source.encoder.layer, strict=True):
            attention, merged = each.attention, made.self_attn
            products = [getattr(attention.self, name) for name in ("query", "key", "value")]
            merged.in_proj_weight.data.copy_(torch.cat([product.weight.detach() for product in products]))
            merged.in_proj_bias.data.copy_(torch.cat([product.bias.detach() for product in products]))
            merged.out_proj.load_state_dict(attention.output.dense.state_dict())
            made.linear1.load_state_dict(each.intermediate.dense.state_dict())
            made.linear2.load_state_dict(each.output.dense.state_dict())
            made.norm1.load_state_dict(attention.output.LayerNorm.state_dict())
            made.norm2.load_state_dict(each.output.LayerNorm.state_dict())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=DEVICE)
        return self.layers(self.norm(self.words(ids) + self.places(places) + self.kind))
