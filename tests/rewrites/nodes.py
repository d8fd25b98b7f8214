"""The kinds of nodes of a program, each with several variants that compute the same by different operators.

A variant is a function of the weights and inputs of the node. Random numbers are drawn when the weights are made. The
operators of a node with several products are named after their part; a merged product has the names of all its parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from joulediff.frameworks.named_regions import region

Tensor = torch.Tensor
Variant = Callable[..., Any]
HEADS, KV_HEADS = 4, 2
EPSILON = 1e-5


@dataclass(frozen=True)
class Kind:
    """A kind of node: how its weights are shaped, and its variants."""

    shapes: Callable[[int], Sequence[tuple[int, ...]]]
    variants: dict[str, Variant]


def linear_1x1(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    image = x.t()[None, :, :, None]
    return functional.conv2d(image, weight[:, :, None, None], bias)[0, :, :, 0].t()


def linear_shards(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """The sum of two products, each with half of the columns, as on two devices."""
    half = x.shape[1] // 2
    return x[:, :half] @ weight[:, :half].t() + x[:, half:] @ weight[:, half:].t() + bias


def linear_padded(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    padded = functional.pad(x, (0, 8))
    return functional.linear(padded, functional.pad(weight, (0, 8)), bias)


def gelu_exact(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.erf(x * math.sqrt(0.5)))


def gelu_decomposed(x: Tensor) -> Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def layer_norm(gain: Tensor, bias: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), gain, bias, eps)


def layer_norm_decomposed(gain: Tensor, bias: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * gain + bias


def rms_norm(gain: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), gain, eps)


def rms_decomposed(gain: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def softmax_decomposed(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def multiply_part(part: str, x: Tensor, weight: Tensor, product: Variant = functional.linear) -> Tensor:
    """Return one of the products of a node, named after its part."""
    with region(part):
        return product(x, weight)  # type: ignore[no-any-return]


def qkv_fused(q: Tensor, k: Tensor, v: Tensor, x: Tensor, *, product: Variant = functional.linear) -> list[Tensor]:
    sizes = [q.shape[0], k.shape[0], v.shape[0]]
    return list(multiply_part("q+k+v", x, torch.cat([q, k, v]), product).split(sizes, dim=-1))


def qkv_apart(q: Tensor, k: Tensor, v: Tensor, x: Tensor, *, product: Variant = functional.linear) -> list[Tensor]:
    return [multiply_part(part, x, weight, product) for part, weight in (("q", q), ("k", k), ("v", v))]


def heads_of(x: Tensor, count: int) -> Tensor:
    return x.view(1, x.shape[0], count, -1).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, *, repeat: Variant, softmax: Variant, scale: float | None = None) -> Tensor:
    q, k, v = heads_of(q, HEADS), repeat(heads_of(k, KV_HEADS)), repeat(heads_of(v, KV_HEADS))
    length = q.shape[2]
    mask = torch.full((length, length), -1e4, dtype=q.dtype).triu(1)
    scores = q @ k.transpose(-1, -2)
    scores = scores / math.sqrt(q.shape[-1]) if scale is None else scores * scale
    return (softmax(scores + mask) @ v).transpose(1, 2).reshape(length, -1)


def attend_eager(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return attend(q, k, v, repeat=interleave, softmax=softmax_fused, **options)


def attend_decomposed(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return attend(q, k, v, repeat=expand, softmax=softmax_decomposed, **options)


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor, *, repeat: Variant | None, scale: float | None = None) -> Tensor:
    length, (q, k, v) = q.shape[0], (heads_of(q, HEADS), heads_of(k, KV_HEADS), heads_of(v, KV_HEADS))
    if repeat is not None:
        k, v = repeat(k), repeat(v)
    found = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=repeat is None)
    return found.transpose(1, 2).reshape(length, -1)


def attend_repeated(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return attend_sdpa(q, k, v, repeat=expand, **options)


def attend_shared(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return attend_sdpa(q, k, v, repeat=None, **options)


def interleave(x: Tensor) -> Tensor:
    return x.repeat_interleave(HEADS // KV_HEADS, dim=1)


def expand(x: Tensor) -> Tensor:
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, HEADS // heads, length, width).reshape(batch, HEADS, length, width)


def softmax_fused(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def loss_decomposed(weight: Tensor, targets: Tensor, x: Tensor) -> Tensor:
    logits = functional.linear(x, weight)
    return (torch.logsumexp(logits, -1) - logits.gather(-1, targets[:, None])[:, 0]).mean()


def swiglu_fused(
    gate: Tensor, up: Tensor, x: Tensor, *, product: Variant = functional.linear, activation: Variant = functional.silu
) -> Tensor:
    a, b = multiply_part("gate+up", x, torch.cat([gate, up]), product).chunk(2, -1)
    with region("act"):
        return activation(a) * b  # type: ignore[no-any-return]


def swiglu_apart(
    gate: Tensor, up: Tensor, x: Tensor, *, product: Variant = functional.linear, activation: Variant = functional.silu
) -> Tensor:
    a, b = multiply_part("gate", x, gate, product), multiply_part("up", x, up, product)
    with region("act"):
        return activation(a) * b  # type: ignore[no-any-return]


def make_angles(x: Tensor, *, multiply: Variant) -> list[Tensor]:
    """Return the cosines and sines of rotary positions, of one half of a head each."""
    half = x.shape[1] // HEADS // 2
    frequencies = 1e4 ** -(torch.arange(half, dtype=torch.float32) / half)
    angles = multiply(torch.arange(x.shape[0], dtype=torch.float32), frequencies)
    return [angles.cos().to(x.dtype), angles.sin().to(x.dtype)]


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[:, None], sin[:, None]
    a, b = x.view(x.shape[0], -1, 2 * cos.shape[-1]).chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def rotate_whole(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As Hugging Face models write it."""
    cos, sin = torch.cat([cos, cos], -1)[:, None], torch.cat([sin, sin], -1)[:, None]
    whole = x.view(x.shape[0], -1, cos.shape[-1])
    a, b = whole.chunk(2, -1)
    return (whole * cos + torch.cat([-b, a], -1) * sin).reshape(x.shape)


def in_place(gain: Tensor, x: Tensor) -> Tensor:
    y = x * gain
    y.add_(1.0)
    return y.mul_(0.5)


def square(width: int) -> list[tuple[int, ...]]:
    return [(width, width), (width,)]


def kv_width(width: int) -> int:
    return width * KV_HEADS // HEADS


KINDS: dict[str, Kind] = {
    "linear": Kind(
        square,
        {
            "linear": lambda w, b, x: functional.linear(x, w, b),
            "addmm": lambda w, b, x: torch.addmm(b, x, w.t()),
            "matmul": lambda w, b, x: torch.matmul(x, w.t()) + b,
            "transposed": lambda w, b, x: (torch.matmul(w, x.t()) + b[:, None]).t(),
            "conv": linear_1x1,
            "shards": linear_shards,
            "padded": linear_padded,
        },
    ),
    "gelu": Kind(
        lambda width: [],
        {"fused": lambda x: functional.gelu(x, approximate="tanh"), "decomposed": gelu_decomposed},
    ),
    "gelu_exact": Kind(lambda width: [], {"fused": functional.gelu, "decomposed": gelu_exact}),
    "silu": Kind(lambda width: [], {"fused": functional.silu, "decomposed": lambda x: x * torch.sigmoid(x)}),
    "layer_norm": Kind(
        lambda width: [(width,), (width,)],
        {"fused": layer_norm, "decomposed": layer_norm_decomposed},
    ),
    "rms_norm": Kind(lambda width: [(width,)], {"fused": rms_norm, "decomposed": rms_decomposed}),
    "softmax": Kind(lambda width: [], {"fused": softmax_fused, "decomposed": softmax_decomposed}),
    "scale": Kind(
        lambda width: [(width,)],
        {"in place": in_place, "new": lambda g, x: (x * g + 1.0) * 0.5},
    ),
    "swiglu": Kind(
        lambda width: [(width, width), (width, width)],
        {"apart": swiglu_apart, "fused": swiglu_fused},
    ),
    "qkv": Kind(
        lambda width: [(width, width), (kv_width(width), width), (kv_width(width), width)],
        {"apart": qkv_apart, "fused": qkv_fused},
    ),
    "attention": Kind(
        lambda width: [],
        {
            "eager": attend_eager,
            "decomposed": attend_decomposed,
            "sdpa": attend_repeated,
            "gqa": attend_shared,
        },
    ),
    "angles": Kind(
        lambda width: [],
        {
            "outer": lambda x: make_angles(x, multiply=torch.outer),
            "product": lambda x: make_angles(x, multiply=lambda a, b: a[:, None] @ b[None]),
        },
    ),
    "rotary": Kind(lambda width: [], {"halves": rotate_halves, "whole": rotate_whole}),
    "add": Kind(lambda width: [], {"add": torch.add, "out": lambda x, y: x.clone().add_(y)}),
    "loss": Kind(
        lambda width: [(4 * width, width)],
        {
            "fused": lambda w, t, x: functional.cross_entropy(functional.linear(x, w), t),
            "decomposed": loss_decomposed,
            "log_softmax": lambda w, t, x: functional.nll_loss(torch.log_softmax(functional.linear(x, w), -1), t),
        },
    ),
}

# Functions that return the value of their input.
NO_OPS: list[Variant] = [
    lambda x: x.clone(),
    lambda x: x.t().contiguous().t(),
    lambda x: x.to(torch.float64).to(x.dtype),
    lambda x: x * 1.0,
    lambda x: x + 0.0,
    lambda x: x.reshape(-1).view(x.shape),
    lambda x: functional.dropout(x, 0.1, training=False),
    lambda x: x[None].repeat(2, 1, 1)[0],
]
