"""A GPT-2 forward pass by Hugging Face, by Megatron-Core and in the style of nanoGPT, with the same weights.

joulediff diff benchmarks/systems/gpt2.py:hf benchmarks/systems/gpt2.py:megatron
joulediff diff benchmarks/systems/gpt2.py:hf benchmarks/systems/gpt2.py:nano

Megatron-Core keeps tokens first and the batch second, and its merged product holds query, key and value of one head
after the other. Without Transformer Engine, as here, its attention is written out in single operators.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from system_sizes import DEVICE, DTYPE, choose, draw_tokens, look_trained, make_step, place
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH = choose(tiny=(2, 24), small=(2, 64), real=(16, 512))
WIDTH, LAYERS, HEADS = choose(tiny=(64, 3, 4), small=(256, 12, 8), real=(768, 12, 12))
WORDS = choose(tiny=320, small=320, real=50257)


def _make_hf() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        vocab_size=WORDS,
        initializer_range=0.02 * (768 / WIDTH) ** 0.5,
    )
    return place(look_trained(GPT2LMHeadModel(config)))


def hf() -> Callable[[], object]:
    model, ids = _make_hf(), draw_tokens(BATCH, LENGTH, WORDS)
    return make_step(lambda: model(ids).logits)


def nano() -> Callable[[], object]:
    model, ids = Gpt(_make_hf()).eval(), draw_tokens(BATCH, LENGTH, WORDS)
    return make_step(lambda: model(ids))


def megatron() -> Callable[[], object]:
    source, ids = _make_hf(), draw_tokens(BATCH, LENGTH, WORDS)
    model = _make_megatron()
    _copy_to_megatron(source, model)
    places = torch.arange(LENGTH, device=DEVICE).expand(BATCH, -1).contiguous()
    hidden = torch.ones(1, 1, LENGTH, LENGTH, device=DEVICE, dtype=torch.bool).triu(1)
    del source
    return make_step(lambda: model(ids, places, hidden))


def _linear(source: nn.Module) -> nn.Linear:
    """Return a linear layer with the weights of one of Hugging Face, which stores them transposed."""
    weight = source.weight.detach().t()
    made = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device, dtype=weight.dtype)
    made.weight.data.copy_(weight)
    made.bias.data.copy_(source.bias.detach())
    return made


class Attention(nn.Module):
    """Causal attention with one product for query, key and value."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.c_attn, self.c_proj = _linear(source.c_attn), _linear(source.c_proj)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (each.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for each in (q, k, v))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(found.transpose(1, 2).contiguous().view(batch, length, width))


class Mlp(nn.Module):
    """Two products with GELU between."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.c_fc, self.c_proj = _linear(source.c_fc), _linear(source.c_proj)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One layer."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = source.ln_1, source.ln_2
        self.attn, self.mlp = Attention(source.attn), Mlp(source.mlp)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """A GPT with the weights of one of Hugging Face."""

    def __init__(self, source: GPT2LMHeadModel) -> None:
        super().__init__()
        inner = source.transformer
        self.wte, self.wpe, self.ln_f = inner.wte, inner.wpe, inner.ln_f
        self.h = nn.ModuleList(Block(each) for each in inner.h)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def _make_megatron() -> nn.Module:
    _start_megatron()
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        activation_func=partial(functional.gelu, approximate="tanh"),
        layernorm_epsilon=1e-5,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bf16=torch.bfloat16 == DTYPE,
        params_dtype=DTYPE,
        pipeline_dtype=DTYPE,
        use_cpu_initialization=DEVICE == "cpu",
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
    )
    return place(
        GPTModel(
            config=config,
            transformer_layer_spec=get_gpt_layer_local_spec(),
            vocab_size=WORDS,
            max_sequence_length=1024,
            position_embedding_type="learned_absolute",
            share_embeddings_and_output_weights=True,
        )
    )


def _start_megatron() -> None:
    """Start a group of one process."""
    import torch.distributed as dist

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    if DEVICE == "cpu":
        _let_megatron_run_on_cpu()
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=1, pipeline_model_parallel_size=1)
    if DEVICE == "cuda":
        model_parallel_cuda_manual_seed(0)


def _let_megatron_run_on_cpu() -> None:
    """Replace the two things that Megatron-Core asks a GPU for."""
    import megatron.core.tensor_parallel.random as states

    @contextlib.contextmanager
    def fork(self: Any, name: str | None = None) -> Iterator[None]:  # noqa: ARG001
        yield

    torch.cuda.current_device = lambda: torch.device("cpu")
    states.CudaRNGStatesTracker.fork = fork


def _by_head(weight: torch.Tensor) -> torch.Tensor:
    """Return rows of query, key and value of each head, from those of all heads of the query, then the key, ..."""
    return weight.reshape(3, HEADS, WIDTH // HEADS, -1).transpose(0, 1).reshape(weight.shape)


def _copy_to_megatron(source: GPT2LMHeadModel, model: nn.Module) -> None:
    inner, weights = source.transformer, {}
    weights["embedding.word_embeddings.weight"] = inner.wte.weight
    weights["embedding.position_embeddings.weight"] = inner.wpe.weight
    for layer, each in enumerate(inner.h):
        at = f"decoder.layers.{layer}"
        pairs = {"self_attention.linear_proj": each.attn.c_proj, "mlp.linear_fc1": each.mlp.c_fc}
        pairs["mlp.linear_fc2"] = each.mlp.c_proj
        for name, product in pairs.items():
            weights |= {f"{at}.{name}.weight": product.weight.t(), f"{at}.{name}.bias": product.bias}
        for name, norm in (("input_layernorm", each.ln_1), ("pre_mlp_layernorm", each.ln_2)):
            weights |= {f"{at}.{name}.weight": norm.weight, f"{at}.{name}.bias": norm.bias}
        weights[f"{at}.self_attention.linear_qkv.weight"] = _by_head(each.attn.c_attn.weight.t())
        weights[f"{at}.self_attention.linear_qkv.bias"] = _by_head(each.attn.c_attn.bias)
    weights["decoder.final_layernorm.weight"] = inner.ln_f.weight
    weights["decoder.final_layernorm.bias"] = inner.ln_f.bias
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        raise ValueError(f"the parameters of the two models differ: {sorted(parameters.keys() ^ weights.keys())}")
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[name].copy_(weight)
