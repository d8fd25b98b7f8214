"""Float32 products without and with TF32."""

import torch

from pairs.common import DEVICE, Expected, pick

EXPECTED = Expected("misconfiguration", "torch.backends.cuda.matmul.allow_tf32", "setting", devices=("cuda",))


def _build():
    torch.manual_seed(0)
    size = pick(512, 4096)
    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, size)).to(DEVICE)
    x = torch.randn(size, size, device=DEVICE)

    def step():
        with torch.no_grad():
            return model(x)

    return step


def wasteful():
    torch.backends.cuda.matmul.allow_tf32 = False  # <- here
    return _build()


def lean():
    torch.backends.cuda.matmul.allow_tf32 = True
    return _build()
