"""Keys and values repeated for grouped-query attention, and `enable_gqa`."""

import torch
from torch.nn import functional as F  # noqa: N812

from pairs.common import DEVICE, ON_GPU, Expected, pick

EXPECTED = Expected("redundant", "repeat_interleave", "redundancy")


def _build(attend):
    torch.manual_seed(0)
    kind = torch.float16 if ON_GPU else torch.float32
    batch, heads, tokens, width = pick(1, 4), pick(8, 32), pick(96, 2048), pick(64, 128)
    q = torch.randn(batch, heads, tokens, width, device=DEVICE, dtype=kind)
    k, v = (torch.randn(batch, heads // 4, tokens, width, device=DEVICE, dtype=kind) for _ in range(2))

    def step():
        with torch.no_grad():
            return attend(q, k, v)

    return step


def _repeated(q, k, v):
    k = k.repeat_interleave(4, dim=1)  # <- here
    v = v.repeat_interleave(4, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def wasteful():
    return _build(_repeated)


def lean():
    return _build(_grouped)
