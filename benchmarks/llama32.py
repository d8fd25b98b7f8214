"""Small Llama with 32 layers, with eager and with fused attention, to measure the time of an offline diff.

joulediff record benchmarks/llama32.py:eager -o eager.jd --seconds 1 --wait 0 --replay-seconds 5
joulediff record benchmarks/llama32.py:sdpa -o sdpa.jd --seconds 1 --wait 0 --replay-seconds 5
time joulediff diff eager.jd sdpa.jd
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def _build(attention: str) -> Callable[[], object]:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=500,
        attn_implementation=attention,
    )
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 500, (1, 16))

    def step() -> object:
        with torch.no_grad():
            return model(ids).logits

    return step


def eager() -> Callable[[], object]:
    return _build("eager")


def sdpa() -> Callable[[], object]:
    return _build("sdpa")
