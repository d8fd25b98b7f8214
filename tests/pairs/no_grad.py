"""An encoder layer that cannot take its fast path because gradients are on, and under `no_grad`."""

import torch

from pairs.common import DEVICE, ON_GPU, Expected, pick

EXPECTED = Expected("misconfiguration", "torch.is_grad_enabled", "call_path")


def _build():
    torch.manual_seed(0)
    width = pick(32, 512)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
    model = layer.to(DEVICE, torch.float16 if ON_GPU else torch.float32).eval()
    x = torch.randn(pick(1, 16), pick(8, 256), width, device=DEVICE, dtype=next(model.parameters()).dtype)
    return lambda: model(x)  # <- here


def wasteful():
    return _build()


def lean():
    step = _build()

    def quiet():
        with torch.no_grad():
            return step()

    return quiet
