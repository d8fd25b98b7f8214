"""Small Hugging Face models with random weights: eager or fused attention, any float type, exported, in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
VOCABULARY = 320


def _gpt2(attention: str) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=VOCABULARY, attn_implementation=attention)
    return GPT2LMHeadModel(config)


def _llama(attention: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=VOCABULARY, attn_implementation=attention)
    return LlamaForCausalLM(config)


def _bert(attention: str) -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**SIZES, vocab_size=VOCABULARY, attn_implementation=attention))


def _vit(attention: str) -> Any:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(**SIZES, image_size=32, patch_size=8, attn_implementation=attention))


def _t5(attention: str) -> Any:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=64, d_ff=128, num_layers=3, num_heads=4, d_kv=16, vocab_size=VOCABULARY)
    config._attn_implementation = attention
    return T5EncoderModel(config)


def _mixtral(attention: str) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **SIZES, num_key_value_heads=2, num_local_experts=4, vocab_size=VOCABULARY, attn_implementation=attention
    )
    return MixtralForCausalLM(config)


MODELS: dict[str, Callable[[str], Any]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "bert": _bert,
    "vit": _vit,
    "t5": _t5,
    "mixtral": _mixtral,
}


def make_model(name: str, *, attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> tuple[Any, torch.Tensor]:
    """Return a model and its input. The weights do not depend on the attention."""
    torch.manual_seed(0)
    model = MODELS[name](attention).eval()
    # As in trained models, norms are not all ones and biases are not all zeros.
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model = model.to(dtype)
    if name == "vit":
        return model, torch.randn(2, 3, 32, 32, generator=generator).to(dtype)
    return model, torch.randint(0, VOCABULARY, (2, 24), generator=generator)


def make_step(name: str, **options: Any) -> Callable[[], Any]:
    """Return a step that calls a model."""
    model, given = make_model(name, **options)

    def step() -> Any:
        with torch.no_grad():
            return model(given)[0]

    return step


def make_training_step(name: str, **options: Any) -> Callable[[], Any]:
    """Return a training step: forward, backward, optimizer."""
    model, given = make_model(name, **options)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(given)[0].float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def make_exported_step(name: str, **options: Any) -> Callable[[], Any]:
    """Return a step that calls a model exported by `torch.export`."""
    model, given = make_model(name, **options)

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.model(given)[0]  # type: ignore[no-any-return]

    with torch.no_grad():
        program = torch.export.export(Alone(), (given,)).module()

    def step() -> Any:
        with torch.no_grad():
            return program(given)

    return step
