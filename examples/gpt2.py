"""GPT-2 small with its default activation and with the fused one: same outputs, different kernels.

joulediff diff examples/gpt2.py:plain examples/gpt2.py:fused
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

ON_GPU = torch.cuda.is_available()


def _build(activation):
    torch.manual_seed(0)
    device, kind = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.float32)
    config = GPT2Config(activation_function=activation, n_layer=12 if ON_GPU else 2)
    model = GPT2LMHeadModel(config).to(device, kind).eval()
    ids = torch.randint(0, config.vocab_size, (8, 512) if ON_GPU else (1, 16), device=device)

    def step():
        with torch.no_grad():
            return model(ids).logits

    return step


def plain():
    return _build("gelu_new")


def fused():
    return _build("gelu_pytorch_tanh")


build = plain
