"""Prefill of a Llama by Hugging Face, by vLLM, and by a hand-written model with merged products.

joulediff diff benchmarks/systems/llama.py:hf benchmarks/systems/llama.py:vllm        16 layers, one generated token
joulediff diff benchmarks/systems/llama.py:hf8 benchmarks/systems/llama.py:plain8     8 layers, logits of the last token

vLLM reads the weights from a folder, SYSTEMS_FOLDER or one in the folder for temporary files. It needs a GPU.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from system_sizes import DEVICE, DTYPE, choose, draw_tokens, make_step
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, LENGTH = choose(tiny=(2, 24), small=(2, 64), real=(16, 512))
LAYERS = choose(tiny=4, small=16, real=16)
FEWER = choose(tiny=2, small=8, real=8)
WORDS = choose(tiny=320, small=320, real=32000)
WIDTH, INNER, HEADS, KV_HEADS = choose(tiny=(64, 176, 4, 2), small=(256, 704, 8, 2), real=(2048, 5632, 16, 4))


def _folder(layers: int) -> Path:
    root = Path(os.environ.get("SYSTEMS_FOLDER", tempfile.gettempdir()))
    return root / f"joulediff-llama-{layers}-{WIDTH}-{str(DTYPE).rpartition('.')[2]}"


def _save(layers: int) -> Path:
    """Return the folder of a model with random weights, made at the first call."""
    folder = _folder(layers)
    if not (folder / "done").exists():
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            num_hidden_layers=layers,
            vocab_size=WORDS,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            # The default for the real width; narrow layers with it would add next to nothing to the stream.
            initializer_range=0.02 * (2048 / WIDTH) ** 0.5,
        )
        LlamaForCausalLM(config).to(DTYPE).save_pretrained(folder)
        (folder / "done").touch()
    return folder


def _load(layers: int) -> LlamaForCausalLM:
    # Without a change of the type here: the frequencies of the positions stay in float32.
    return LlamaForCausalLM.from_pretrained(_save(layers), dtype=DTYPE).to(DEVICE).eval()


def hf() -> Callable[[], object]:
    model, ids = _load(LAYERS), draw_tokens(BATCH, LENGTH, WORDS)
    options = {"max_new_tokens": 1, "min_new_tokens": 1, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    return make_step(lambda: model.generate(ids, **options)[:, LENGTH:])


def vllm() -> Callable[[], object]:
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        HF_HUB_OFFLINE="1",
        VLLM_USE_FLASHINFER_SAMPLER="0",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(_save(LAYERS)),
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=1024,
        gpu_memory_utilization=0.4,
        disable_log_stats=True,
        enable_prefix_caching=False,
        enforce_eager=True,
    )
    prompts = [{"prompt_token_ids": row} for row in draw_tokens(BATCH, LENGTH, WORDS).tolist()]
    sampling = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True, detokenize=False)

    def step() -> object:
        found = engine.generate(prompts, sampling, use_tqdm=False)
        return torch.tensor([each.outputs[0].token_ids[0] for each in found])

    return step


def hf8() -> Callable[[], object]:
    model, ids = _load(FEWER), draw_tokens(BATCH, LENGTH, WORDS)
    return make_step(lambda: model(ids, logits_to_keep=1).logits)


def plain() -> Callable[[], object]:
    return _build_plain(LAYERS)


def plain8() -> Callable[[], object]:
    return _build_plain(FEWER)


def _build_plain(layers: int) -> Callable[[], object]:
    model, ids = Llama(_load(layers)).eval(), draw_tokens(BATCH, LENGTH, WORDS)
    return make_step(lambda: model(ids))


class Norm(nn.Module):
    """The root mean square norm as one call."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(source.weight.detach().clone()), source.variance_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def merge(*sources: nn.Linear) -> nn.Linear:
    """Return one product for several of the same input."""
    weight = torch.cat([each.weight.detach() for each in sources])
    merged = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=weight.device, dtype=weight.dtype)
    merged.weight.data.copy_(weight)
    return merged


class Attention(nn.Module):
    """Attention with one product for queries, keys and values."""

    def __init__(self, source: nn.Module, config: LlamaConfig) -> None:
        super().__init__()
        self.qkv, self.out = merge(source.q_proj, source.k_proj, source.v_proj), merge(source.o_proj)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = config.hidden_size // self.heads

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        sizes = [self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width]
        q, k, v = (
            part.view(batch, length, -1, self.width).transpose(1, 2) for part in self.qkv(x).split(sizes, dim=-1)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, -1))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of each head."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Mlp(nn.Module):
    """The gated layer with one product for gate and up."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.gate_up, self.down = merge(source.gate_proj, source.up_proj), merge(source.down_proj)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * up)


class Layer(nn.Module):
    """One layer."""

    def __init__(self, source: nn.Module, config: LlamaConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(source.input_layernorm), Norm(source.post_attention_layernorm)
        self.attention, self.mlp = Attention(source.self_attn, config), Mlp(source.mlp)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    """A Llama with the weights of one of Hugging Face."""

    def __init__(self, source: LlamaForCausalLM) -> None:
        super().__init__()
        inner = source.model
        self.embed = nn.Embedding.from_pretrained(inner.embed_tokens.weight.detach())
        self.layers = nn.ModuleList(Layer(each, source.config) for each in inner.layers)
        self.norm, self.head = Norm(inner.norm), merge(source.lm_head)
        frequencies = inner.rotary_emb.inv_freq.detach().float()
        angles = torch.outer(torch.arange(LENGTH, device=DEVICE, dtype=torch.float32), frequencies)
        self.register_buffer("cos", angles.cos().to(DTYPE))
        self.register_buffer("sin", angles.sin().to(DTYPE))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x[:, -1:]))
