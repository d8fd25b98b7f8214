"""Keys and values repeated for grouped-query attention, and `enable_gqa`."""

import torch
from torch.nn import functional as F  # noqa: N812

from pairs.common import DEVICE, ON_GPU, Expected, pick

EXPECTED = Expected("redundant", "repeat_interleave", "redundancy")

GROUP = pick(16, 4)


def _build(attend):
    torch.manual_seed(0)
    kind = torch.float16 if ON_GPU else torch.float32
    batch, heads, tokens, width = pick(1, 4), pick(16, 32), pick(128, 2048), pick(64, 128)
    q = torch.randn(batch, heads, pick(4, 2048), width, device=DEVICE, dtype=kind)
    k, v = (torch.randn(batch, heads // GROUP, tokens, width, device=DEVICE, dtype=kind) for _ in range(2))

    def step():
        with torch.no_grad():
            return attend(q, k, v)

    return step


def _repeated(q, k, v):
    k = k.repeat_interleave(GROUP, dim=1)  # <- here
    v = v.repeat_interleave(GROUP, dim=1)
    return F.scaled_dot_product_attention(q, k, v)


def _grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def wasteful():
    return _build(_repeated)


def lean():
    return _build(_grouped)
