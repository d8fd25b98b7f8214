"""Programs that `benchmarks/aa.py` compares with themselves."""

from __future__ import annotations

from collections.abc import Callable

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPE = torch.float16 if ON_GPU else torch.float32

Step = Callable[[], object]


def gpt2() -> Step:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    width, layers, tokens = (768, 6, 512) if ON_GPU else (64, 2, 32)
    config = GPT2Config(n_layer=layers, n_head=4, n_embd=width, vocab_size=1000, bos_token_id=0, eos_token_id=0)
    model = GPT2Model(config).to(DEVICE, DTYPE).eval()
    ids = torch.randint(0, 1000, (8 if ON_GPU else 1, tokens), device=DEVICE)

    def step() -> object:
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step


def conv() -> Step:
    torch.manual_seed(0)
    width, size = (256, 56) if ON_GPU else (32, 14)
    layers = [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, *layers).to(DEVICE, DTYPE).eval()
    x = torch.randn(16 if ON_GPU else 1, width, size, size, device=DEVICE, dtype=DTYPE)

    def step() -> object:
        with torch.no_grad():
            return model(x)

    return step


def train() -> Step:
    torch.manual_seed(0)
    width = 2048 if ON_GPU else 64
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 10)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, target = torch.randn(256, width, device=DEVICE), torch.randint(0, 10, (256,), device=DEVICE)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def encoder() -> Step:
    torch.manual_seed(0)
    width = 512 if ON_GPU else 32
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.1)
    model = layer.to(DEVICE, DTYPE).train()
    x = torch.randn(16 if ON_GPU else 1, 256 if ON_GPU else 16, width, device=DEVICE, dtype=DTYPE)
    return lambda: model(x)


def elementwise() -> Step:
    torch.manual_seed(0)
    x = torch.randn(4096 if ON_GPU else 64, 4096 if ON_GPU else 256, device=DEVICE)
    return lambda: torch.tanh(x * 2 + 1).softmax(-1).sum()
