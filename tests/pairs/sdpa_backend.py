"""Attention with the fused kernels switched off, and with them."""

import torch
from torch.nn import functional as F  # noqa: N812

from pairs.common import DEVICE, ON_GPU, Expected, pick

EXPECTED = Expected("misconfiguration", "torch.backends.cuda.flash_sdp_enabled", "setting")


def _build():
    torch.manual_seed(0)
    kind = torch.float16 if ON_GPU else torch.float32
    shape = (pick(1, 8), pick(2, 16), pick(256, 2048), 64)
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=kind) for _ in range(3))

    def step():
        with torch.no_grad():
            return F.scaled_dot_product_attention(q, k, v)

    return step


def _choose(fused):
    torch.backends.cuda.enable_flash_sdp(fused)  # <- here
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def wasteful():
    _choose(fused=False)
    return _build()


def lean():
    _choose(fused=True)
    return _build()
