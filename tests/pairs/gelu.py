"""GPT-2 whose GELU is eight elementwise operators by its configuration, and with the fused one."""

import torch
from transformers import GPT2Config, GPT2Model

from pairs.common import DEVICE, ON_GPU, Expected, pick

EXPECTED = Expected("misconfiguration", "activation_function", "call_path")


def _build(activation):
    torch.manual_seed(0)
    width = pick(64, 768)
    config = GPT2Config(
        n_layer=pick(2, 4),
        n_head=4 if not ON_GPU else 12,
        n_embd=width,
        vocab_size=1000,
        n_positions=1024,
        bos_token_id=0,
        eos_token_id=0,
        activation_function=activation,  # <- here
    )
    model = GPT2Model(config).to(DEVICE, torch.float16 if ON_GPU else torch.float32).eval()
    ids = torch.randint(0, 1000, (pick(1, 8), pick(16, 512)), device=DEVICE)

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step


def wasteful():
    return _build("gelu_new")


def lean():
    return _build("gelu_pytorch_tanh")
